hal.executable.variant target(<"llvm-cpu", "embedded-elf-x86_64", {cpu = "znver5", x = "+a"}>) {
  func.func @f() attributes {translation_info = #iree_codegen.translation_info<pipeline =
      #iree_cpu.pipeline<DoubleTilingExpert>>} {
    %6 = linalg.fill {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 3]>}
    %7 = linalg.matmul {lowering_config = #iree_cpu.lowering_config<distribution = [64, 43, 0],
        vector_reduction = [0, 0, 13]>} ins(%3, %4 : tensor<257x65xf32>)
