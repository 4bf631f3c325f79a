from __future__ import annotations

from gemmetry.providers.iree_provider.compiler import chosen_configuration, host_cpu

CONFIGURED = """\
hal.executable.variant target(<"llvm-cpu", "embedded-elf-x86_64", {cpu = "znver5", x = "+a"}>) {
  func.func @f() attributes {translation_info = #iree_codegen.translation_info<pipeline =
      #iree_cpu.pipeline<DoubleTilingExpert>>} {
    %6 = linalg.fill {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 3]>}
    %7 = linalg.matmul {lowering_config = #iree_cpu.lowering_config<distribution = [64, 43, 0],
        vector_reduction = [0, 0, 13]>} ins(%3, %4 : tensor<257x65xf32>)
"""


def test_the_configuration_of_the_contraction_is_reported_not_that_of_the_fill():
    assert chosen_configuration(CONFIGURED) == (
        "lowering_config = #iree_cpu.lowering_config<distribution = [64, 43, 0], "
        "vector_reduction = [0, 0, 13]>; translation_info = #iree_codegen.translation_info<"
        "pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>"
    )


def test_an_attribute_with_braces_ends_at_its_own():
    text = "{lowering_config = #iree_gpu.lowering_config<{reduction = [0], a = [[1, 2], [0]]}>} ins"
    assert chosen_configuration(text) == (
        "lowering_config = #iree_gpu.lowering_config<{reduction = [0], a = [[1, 2], [0]]}>"
    )


def test_nothing_chosen_is_none():
    assert chosen_configuration("func.func @f() {}") is None
    assert host_cpu("") is None


def test_the_host_is_named():
    assert host_cpu(CONFIGURED) == "znver5"
