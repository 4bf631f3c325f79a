func.func @matmul_8x16x32_f32t_f32t_f32t_default(
    %lhs: tensor<8x32xf32>,
    %rhs: tensor<32x16xf32>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xf32>, tensor<32x16xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %result : tensor<8x16xf32>
}

func.func @matmul_8x16x32_f16t_f16t_f16t_default(
    %lhs: tensor<8x32xf16>,
    %rhs: tensor<32x16xf16>,
    %out: tensor<8x16xf16> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %acc = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xf16>, tensor<32x16xf16>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result_empty = tensor.empty() : tensor<8x16xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<8x16xf32>)
      outs(%result_empty : tensor<8x16xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<8x16xf16>
  return %result : tensor<8x16xf16>
}

func.func @matmul_8x16x32_f16t_f16t_f16t_accf16_default(
    %lhs: tensor<8x32xf16>,
    %rhs: tensor<32x16xf16>,
    %out: tensor<8x16xf16> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf16> {
  %zero = arith.constant 0.0 : f16
  %acc_empty = tensor.empty() : tensor<8x16xf16>
  %acc_zeros = linalg.fill ins(%zero : f16) outs(%acc_empty : tensor<8x16xf16>) -> tensor<8x16xf16>
  %result = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xf16>, tensor<32x16xf16>)
      outs(%acc_zeros : tensor<8x16xf16>) -> tensor<8x16xf16>
  return %result : tensor<8x16xf16>
}

func.func @matmul_8x16x32_f32t_f32n_f32t_default(
    %lhs: tensor<8x32xf32>,
    %rhs: tensor<16x32xf32>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%lhs, %rhs : tensor<8x32xf32>, tensor<16x32xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %result : tensor<8x16xf32>
}

func.func @matmul_8x16x32_f32n_f32t_f32t_default(
    %lhs: tensor<32x8xf32>,
    %rhs: tensor<32x16xf32>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%lhs, %rhs : tensor<32x8xf32>, tensor<32x16xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %result : tensor<8x16xf32>
}

func.func @matmul_8x16x32_f32n_f32n_f32t_default(
    %lhs: tensor<32x8xf32>,
    %rhs: tensor<16x32xf32>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%lhs, %rhs : tensor<32x8xf32>, tensor<16x32xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %result : tensor<8x16xf32>
}

func.func @matmul_8x16x32_f32n_f32n_f32n_default(
    %lhs: tensor<32x8xf32>,
    %rhs: tensor<16x32xf32>,
    %out: tensor<16x8xf32> {iree.abi.output = 0 : i32}
) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<16x8xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<16x8xf32>) -> tensor<16x8xf32>
  %result = linalg.matmul
      ins(%rhs, %lhs : tensor<16x32xf32>, tensor<32x8xf32>)
      outs(%acc_zeros : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %result : tensor<16x8xf32>
}

func.func @matmul_8x16x32_e4m3t_e5m2t_f32n_default(
    %lhs: tensor<8x32xf8E4M3FN>,
    %rhs: tensor<32x16xf8E5M2>,
    %out: tensor<16x8xf32> {iree.abi.output = 0 : i32}
) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<16x8xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<16x8xf32>) -> tensor<16x8xf32>
  %result = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%rhs, %lhs : tensor<32x16xf8E5M2>, tensor<8x32xf8E4M3FN>)
      outs(%acc_zeros : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %result : tensor<16x8xf32>
}

func.func @matmul_splitk_8x16x32_f16n_f16t_f32t_slices4_default(
    %lhs: tensor<32x8xf16>,
    %rhs: tensor<32x16xf16>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %lhs_slices = tensor.expand_shape %lhs [[0, 1], [2]] output_shape [4, 8, 8]
      : tensor<32x8xf16> into tensor<4x8x8xf16>
  %rhs_slices = tensor.expand_shape %rhs [[0, 1], [2]] output_shape [4, 8, 16]
      : tensor<32x16xf16> into tensor<4x8x16xf16>
  %partial_empty = tensor.empty() : tensor<4x8x16xf32>
  %partial_zeros = linalg.fill ins(%zero : f32) outs(%partial_empty : tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
  %partial = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%lhs_slices, %rhs_slices : tensor<4x8x8xf16>, tensor<4x8x16xf16>)
      outs(%partial_zeros : tensor<4x8x16xf32>) {
  ^bb0(%a: f16, %b: f16, %c: f32):
    %a_f32 = arith.extf %a : f16 to f32
    %b_f32 = arith.extf %b : f16 to f32
    %product = arith.mulf %a_f32, %b_f32 : f32
    %sum = arith.addf %c, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x8x16xf32>
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.reduce { arith.addf } ins(%partial : tensor<4x8x16xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) dimensions = [0]
  return %result : tensor<8x16xf32>
}

func.func @matmul_splitk_8x16x32_s8t_s8t_s32t_slices4_default(
    %lhs: tensor<8x32xi8>,
    %rhs: tensor<32x16xi8>,
    %out: tensor<8x16xi32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %lhs_slices = tensor.expand_shape %lhs [[0], [1, 2]] output_shape [8, 4, 8]
      : tensor<8x32xi8> into tensor<8x4x8xi8>
  %rhs_slices = tensor.expand_shape %rhs [[0, 1], [2]] output_shape [4, 8, 16]
      : tensor<32x16xi8> into tensor<4x8x16xi8>
  %partial_empty = tensor.empty() : tensor<4x8x16xi32>
  %partial_zeros = linalg.fill ins(%zero : i32) outs(%partial_empty : tensor<4x8x16xi32>) -> tensor<4x8x16xi32>
  %partial = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%lhs_slices, %rhs_slices : tensor<8x4x8xi8>, tensor<4x8x16xi8>)
      outs(%partial_zeros : tensor<4x8x16xi32>) {
  ^bb0(%a: i8, %b: i8, %c: i32):
    %a_s32 = arith.extsi %a : i8 to i32
    %b_s32 = arith.extsi %b : i8 to i32
    %product = arith.muli %a_s32, %b_s32 : i32
    %sum = arith.addi %c, %product : i32
    linalg.yield %sum : i32
  } -> tensor<4x8x16xi32>
  %acc_empty = tensor.empty() : tensor<8x16xi32>
  %acc_zeros = linalg.fill ins(%zero : i32) outs(%acc_empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %result = linalg.reduce { arith.addi } ins(%partial : tensor<4x8x16xi32>)
      outs(%acc_zeros : tensor<8x16xi32>) dimensions = [0]
  return %result : tensor<8x16xi32>
}

func.func @batch_matmul_4x8x16x32_f32t_f32n_f32t_default(
    %lhs: tensor<4x8x32xf32>,
    %rhs: tensor<4x16x32xf32>,
    %out: tensor<4x8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<4x8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<4x8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
  %result = linalg.batch_matmul indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>]
      ins(%lhs, %rhs : tensor<4x8x32xf32>, tensor<4x16x32xf32>)
      outs(%acc_zeros : tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
  return %result : tensor<4x8x16xf32>
}

func.func @conv2d_1x8x8x4_3x3x16_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_default(
    %lhs: tensor<1x8x8x4xf32>,
    %rhs: tensor<3x3x4x16xf32>,
    %out: tensor<1x4x6x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<1x4x6x16xf32> {
  %zero = arith.constant 0.0 : f32
  %pad_value = arith.constant 0.0 : f32
  %padded = tensor.pad %lhs low[0, 1, 0, 0] high[0, 1, 0, 0] {
  ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
    tensor.yield %pad_value : f32
  } : tensor<1x8x8x4xf32> to tensor<1x10x8x4xf32>
  %acc_empty = tensor.empty() : tensor<1x4x6x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xf32>
  %result = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<[2, 1]> : tensor<2xi64>}
      ins(%padded, %rhs : tensor<1x10x8x4xf32>, tensor<3x3x4x16xf32>)
      outs(%acc_zeros : tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xf32>
  return %result : tensor<1x4x6x16xf32>
}

func.func @conv2d_1x8x8x4_3x3x16_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc_default(
    %lhs: tensor<1x8x8x4xf32>,
    %rhs: tensor<3x3x4x16xf32>,
    %out: tensor<1x6x6x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<1x6x6x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<1x6x6x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32>
  %result = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<[1, 1]> : tensor<2xi64>}
      ins(%lhs, %rhs : tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
      outs(%acc_zeros : tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32>
  return %result : tensor<1x6x6x16xf32>
}

func.func @conv2d_1x8x8x4_3x3x16_stride1x1_pad1x1_s8nhwc_s8hwcf_s32nhwc_bias_relu_default(
    %lhs: tensor<1x8x8x4xi8>,
    %rhs: tensor<3x3x4x16xi8>,
    %bias: tensor<16xi32>,
    %out: tensor<1x8x8x16xi32> {iree.abi.output = 0 : i32}
) -> tensor<1x8x8x16xi32> {
  %zero = arith.constant 0 : i32
  %pad_value = arith.constant 0 : i8
  %padded = tensor.pad %lhs low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
    tensor.yield %pad_value : i8
  } : tensor<1x8x8x4xi8> to tensor<1x10x10x4xi8>
  %acc_empty = tensor.empty() : tensor<1x8x8x16xi32>
  %acc_zeros = linalg.fill ins(%zero : i32) outs(%acc_empty : tensor<1x8x8x16xi32>) -> tensor<1x8x8x16xi32>
  %acc = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<[1, 1]> : tensor<2xi64>}
      ins(%padded, %rhs : tensor<1x10x10x4xi8>, tensor<3x3x4x16xi8>)
      outs(%acc_zeros : tensor<1x8x8x16xi32>) -> tensor<1x8x8x16xi32>
  %relu_floor = arith.constant 0 : i32
  %result_empty = tensor.empty() : tensor<1x8x8x16xi32>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%acc, %bias : tensor<1x8x8x16xi32>, tensor<16xi32>)
      outs(%result_empty : tensor<1x8x8x16xi32>) {
  ^bb0(%acc_element: i32, %bias_element: i32, %unused: i32):
    %with_bias = arith.addi %acc_element, %bias_element : i32
    %relu = arith.maxsi %with_bias, %relu_floor : i32
    linalg.yield %relu : i32
  } -> tensor<1x8x8x16xi32>
  return %result : tensor<1x8x8x16xi32>
}

func.func @matmul_8x16x32_bf16t_bf16t_bf16t_alpha0p5_beta2_residual_gelu_bias_relu_default(
    %lhs: tensor<8x32xbf16>,
    %rhs: tensor<32x16xbf16>,
    %addend: tensor<8x16xbf16>,
    %bias: tensor<16xbf16>,
    %residual: tensor<8x16xbf16>,
    %out: tensor<8x16xbf16> {iree.abi.output = 0 : i32}
) -> tensor<8x16xbf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %acc = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xbf16>, tensor<32x16xbf16>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  %alpha = arith.constant 0.5 : f32
  %beta = arith.constant 2.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %sqrt_half = arith.constant 0.70710678118654757 : f32
  %relu_floor = arith.constant 0.0 : f32
  %result_empty = tensor.empty() : tensor<8x16xbf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc, %addend, %bias, %residual : tensor<8x16xf32>, tensor<8x16xbf16>, tensor<16xbf16>, tensor<8x16xbf16>)
      outs(%result_empty : tensor<8x16xbf16>) {
  ^bb0(%acc_element: f32, %addend_element: bf16, %bias_element: bf16, %residual_element: bf16, %unused: bf16):
    %scaled = arith.mulf %acc_element, %alpha : f32
    %addend_f32 = arith.extf %addend_element : bf16 to f32
    %addend_scaled = arith.mulf %addend_f32, %beta : f32
    %added = arith.addf %scaled, %addend_scaled : f32
    %residual_f32 = arith.extf %residual_element : bf16 to f32
    %with_residual = arith.addf %added, %residual_f32 : f32
    %gelu_argument = arith.mulf %with_residual, %sqrt_half : f32
    %gelu_erf = math.erf %gelu_argument : f32
    %gelu_sum = arith.addf %gelu_erf, %one : f32
    %gelu_half = arith.mulf %with_residual, %half : f32
    %gelu = arith.mulf %gelu_half, %gelu_sum : f32
    %bias_f32 = arith.extf %bias_element : bf16 to f32
    %with_bias = arith.addf %gelu, %bias_f32 : f32
    %relu = arith.maximumf %with_bias, %relu_floor : f32
    %result_bf16 = arith.truncf %relu : f32 to bf16
    linalg.yield %result_bf16 : bf16
  } -> tensor<8x16xbf16>
  return %result : tensor<8x16xbf16>
}

func.func @matmul_8x16x32_f32t_f32t_f32n_bias_default(
    %lhs: tensor<8x32xf32>,
    %rhs: tensor<32x16xf32>,
    %bias: tensor<16xf32>,
    %out: tensor<16x8xf32> {iree.abi.output = 0 : i32}
) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<16x8xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<16x8xf32>) -> tensor<16x8xf32>
  %acc = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%rhs, %lhs : tensor<32x16xf32>, tensor<8x32xf32>)
      outs(%acc_zeros : tensor<16x8xf32>) -> tensor<16x8xf32>
  %result_empty = tensor.empty() : tensor<16x8xf32>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc, %bias : tensor<16x8xf32>, tensor<16xf32>)
      outs(%result_empty : tensor<16x8xf32>) {
  ^bb0(%acc_element: f32, %bias_element: f32, %unused: f32):
    %with_bias = arith.addf %acc_element, %bias_element : f32
    linalg.yield %with_bias : f32
  } -> tensor<16x8xf32>
  return %result : tensor<16x8xf32>
}

func.func @matmul_8x16x32_s8t_s8t_s32t_beta1_relu_default(
    %lhs: tensor<8x32xi8>,
    %rhs: tensor<32x16xi8>,
    %addend: tensor<8x16xi32>,
    %out: tensor<8x16xi32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %acc_empty = tensor.empty() : tensor<8x16xi32>
  %acc_zeros = linalg.fill ins(%zero : i32) outs(%acc_empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %acc = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xi8>, tensor<32x16xi8>)
      outs(%acc_zeros : tensor<8x16xi32>) -> tensor<8x16xi32>
  %relu_floor = arith.constant 0 : i32
  %result_empty = tensor.empty() : tensor<8x16xi32>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc, %addend : tensor<8x16xi32>, tensor<8x16xi32>)
      outs(%result_empty : tensor<8x16xi32>) {
  ^bb0(%acc_element: i32, %addend_element: i32, %unused: i32):
    %added = arith.addi %acc_element, %addend_element : i32
    %relu = arith.maxsi %added, %relu_floor : i32
    linalg.yield %relu : i32
  } -> tensor<8x16xi32>
  return %result : tensor<8x16xi32>
}

func.func @matmul_8x16x32_bf16t_bf16t_bf16t_accbf16_default(
    %lhs: tensor<8x32xbf16>,
    %rhs: tensor<32x16xbf16>,
    %out: tensor<8x16xbf16> {iree.abi.output = 0 : i32}
) -> tensor<8x16xbf16> {
  %zero = arith.constant 0.0 : bf16
  %acc_empty = tensor.empty() : tensor<8x16xbf16>
  %acc_zeros = linalg.fill ins(%zero : bf16) outs(%acc_empty : tensor<8x16xbf16>) -> tensor<8x16xbf16>
  %result = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xbf16>, tensor<32x16xbf16>)
      outs(%acc_zeros : tensor<8x16xbf16>) -> tensor<8x16xbf16>
  return %result : tensor<8x16xbf16>
}

func.func @matmul_256x512x128_f16t_f16t_f16t_tile_config_64x64_vector8x32x4(
    %lhs: tensor<256x128xf16>,
    %rhs: tensor<128x512xf16>,
    %out: tensor<256x512xf16> {iree.abi.output = 0 : i32}
) -> tensor<256x512xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x512xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x512xf32>) -> tensor<256x512xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = [64, 64, 0], vector_common_parallel = [8, 32, 0], vector_reduction = [0, 0, 4]>, translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>>}
      ins(%lhs, %rhs : tensor<256x128xf16>, tensor<128x512xf16>)
      outs(%acc_zeros : tensor<256x512xf32>) -> tensor<256x512xf32>
  %result_empty = tensor.empty() : tensor<256x512xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<256x512xf32>)
      outs(%result_empty : tensor<256x512xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<256x512xf16>
  return %result : tensor<256x512xf16>
}

func.func @batch_matmul_4x64x64x64_f32t_f32t_f32t_tile_config_64x64_cache64x64x32_vector8x32x4(
    %lhs: tensor<4x64x64xf32>,
    %rhs: tensor<4x64x64xf32>,
    %out: tensor<4x64x64xf32> {iree.abi.output = 0 : i32}
) -> tensor<4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<4x64x64xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %result = linalg.batch_matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = [1, 64, 64, 0], cache_parallel = [1, 64, 64, 0], cache_reduction = [0, 0, 0, 32], vector_common_parallel = [1, 8, 32, 0], vector_reduction = [0, 0, 0, 4]>, translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>>}
      ins(%lhs, %rhs : tensor<4x64x64xf32>, tensor<4x64x64xf32>)
      outs(%acc_zeros : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  return %result : tensor<4x64x64xf32>
}

func.func @matmul_splitk_128x128x1024_f16t_f16n_f32t_slices4_tile_config_64x64_vector8x32x4(
    %lhs: tensor<128x1024xf16>,
    %rhs: tensor<128x1024xf16>,
    %out: tensor<128x128xf32> {iree.abi.output = 0 : i32}
) -> tensor<128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %lhs_slices = tensor.expand_shape %lhs [[0], [1, 2]] output_shape [128, 4, 256]
      : tensor<128x1024xf16> into tensor<128x4x256xf16>
  %rhs_slices = tensor.expand_shape %rhs [[0], [1, 2]] output_shape [128, 4, 256]
      : tensor<128x1024xf16> into tensor<128x4x256xf16>
  %partial_empty = tensor.empty() : tensor<4x128x128xf32>
  %partial_zeros = linalg.fill ins(%zero : f32) outs(%partial_empty : tensor<4x128x128xf32>) -> tensor<4x128x128xf32>
  %partial = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%lhs_slices, %rhs_slices : tensor<128x4x256xf16>, tensor<128x4x256xf16>)
      outs(%partial_zeros : tensor<4x128x128xf32>) attrs =  {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = [1, 64, 64, 0], vector_common_parallel = [1, 8, 32, 0], vector_reduction = [0, 0, 0, 4]>, translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>>} {
  ^bb0(%a: f16, %b: f16, %c: f32):
    %a_f32 = arith.extf %a : f16 to f32
    %b_f32 = arith.extf %b : f16 to f32
    %product = arith.mulf %a_f32, %b_f32 : f32
    %sum = arith.addf %c, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x128x128xf32>
  %acc_empty = tensor.empty() : tensor<128x128xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<128x128xf32>) -> tensor<128x128xf32>
  %result = linalg.reduce { arith.addf } ins(%partial : tensor<4x128x128xf32>)
      outs(%acc_zeros : tensor<128x128xf32>) dimensions = [0]
  return %result : tensor<128x128xf32>
}

func.func @conv2d_1x8x8x4_3x3x16_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc_tile_config_4x64_vector8x32x4_conv(
    %lhs: tensor<1x8x8x4xf32>,
    %rhs: tensor<3x3x4x16xf32>,
    %out: tensor<1x6x6x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<1x6x6x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<1x6x6x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32>
  %result = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<[1, 1]> : tensor<2xi64>, compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = [1, 4, 0, 64, 0, 0, 0], vector_common_parallel = [1, 1, 8, 32, 0, 0, 0], vector_reduction = [0, 0, 0, 0, 1, 1, 4]>, translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<ConvTileAndDecomposeExpert>>>}
      ins(%lhs, %rhs : tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
      outs(%acc_zeros : tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32>
  return %result : tensor<1x6x6x16xf32>
}

func.func @matmul_256x512x128_f16t_f16t_f16t_tile_config_64x64x64_warps2x2_mma(
    %lhs: tensor<256x128xf16>,
    %rhs: tensor<128x512xf16>,
    %out: tensor<256x512xf16> {iree.abi.output = 0 : i32}
) -> tensor<256x512xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x512xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x512xf32>) -> tensor<256x512xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [0, 1], workgroup = [64, 64, 0], reduction = [0, 0, 4], subgroup = [2, 4, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<256x128xf16>, tensor<128x512xf16>)
      outs(%acc_zeros : tensor<256x512xf32>) -> tensor<256x512xf32>
  %result_empty = tensor.empty() : tensor<256x512xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<256x512xf32>)
      outs(%result_empty : tensor<256x512xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<256x512xf16>
  return %result : tensor<256x512xf16>
}

func.func @matmul_257x129x65_f16t_f16t_f16t_tile_config_64x64x64_warps2x2_mma(
    %lhs: tensor<257x65xf16>,
    %rhs: tensor<65x129xf16>,
    %out: tensor<257x129xf16> {iree.abi.output = 0 : i32}
) -> tensor<257x129xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<257x129xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<257x129xf32>) -> tensor<257x129xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, padding = [64, 64, 64], promote_operands = [0, 1], workgroup = [64, 64, 0], reduction = [0, 0, 4], subgroup = [2, 4, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<257x65xf16>, tensor<65x129xf16>)
      outs(%acc_zeros : tensor<257x129xf32>) -> tensor<257x129xf32>
  %result_empty = tensor.empty() : tensor<257x129xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<257x129xf32>)
      outs(%result_empty : tensor<257x129xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<257x129xf16>
  return %result : tensor<257x129xf16>
}

func.func @batch_matmul_4x64x64x64_f32t_f32n_f32t_tile_config_64x64x32_threads4x4_simt(
    %lhs: tensor<4x64x64xf32>,
    %rhs: tensor<4x64x64xf32>,
    %out: tensor<4x64x64xf32> {iree.abi.output = 0 : i32}
) -> tensor<4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<4x64x64xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %result = linalg.batch_matmul indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>] {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{promote_operands = [0, 1], workgroup = [1, 64, 64, 0], reduction = [0, 0, 0, 32], thread = [1, 4, 4, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [256, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<4x64x64xf32>, tensor<4x64x64xf32>)
      outs(%acc_zeros : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  return %result : tensor<4x64x64xf32>
}

func.func @matmul_256x512x128_f16t_f16t_f16t_tile_config_128x128_32x5_tensorcore_mmasync(
    %lhs: tensor<256x128xf16>,
    %rhs: tensor<128x512xf16>,
    %out: tensor<256x512xf16> {iree.abi.output = 0 : i32}
) -> tensor<256x512xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x512xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x512xf32>) -> tensor<256x512xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [0, 1], workgroup = [128, 128, 0], reduction = [0, 0, 2], subgroup = [4, 8, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<256x128xf16>, tensor<128x512xf16>)
      outs(%acc_zeros : tensor<256x512xf32>) -> tensor<256x512xf32>
  %result_empty = tensor.empty() : tensor<256x512xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<256x512xf32>)
      outs(%result_empty : tensor<256x512xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<256x512xf16>
  return %result : tensor<256x512xf16>
}

func.func @matmul_256x512x128_f32t_f32t_f32t_tile_config_128x128_32x5_tensorcore_mmasync(
    %lhs: tensor<256x128xf32>,
    %rhs: tensor<128x512xf32>,
    %out: tensor<256x512xf32> {iree.abi.output = 0 : i32}
) -> tensor<256x512xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x512xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x512xf32>) -> tensor<256x512xf32>
  %result = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{promote_operands = [0, 1], workgroup = [128, 128, 0], reduction = [0, 0, 32], thread = [16, 8, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<256x128xf32>, tensor<128x512xf32>)
      outs(%acc_zeros : tensor<256x512xf32>) -> tensor<256x512xf32>
  return %result : tensor<256x512xf32>
}

func.func @matmul_256x512x128_f16t_f16t_f16t_tile_config_256x128_32x3_tensorcore_mmasync(
    %lhs: tensor<256x128xf16>,
    %rhs: tensor<128x512xf16>,
    %out: tensor<256x512xf16> {iree.abi.output = 0 : i32}
) -> tensor<256x512xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x512xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x512xf32>) -> tensor<256x512xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [0, 1], workgroup = [256, 128, 0], reduction = [0, 0, 2], subgroup = [4, 8, 0]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [256, 1, 1] subgroup_size = 32>>}
      ins(%lhs, %rhs : tensor<256x128xf16>, tensor<128x512xf16>)
      outs(%acc_zeros : tensor<256x512xf32>) -> tensor<256x512xf32>
  %result_empty = tensor.empty() : tensor<256x512xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<256x512xf32>)
      outs(%result_empty : tensor<256x512xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<256x512xf16>
  return %result : tensor<256x512xf16>
}

func.func @batch_matmul_3x256x256x128_f16t_f16t_f32t_tile_config_128x128x64_waves2x2_mfma16(
    %lhs: tensor<3x256x128xf16>,
    %rhs: tensor<3x128x256xf16>,
    %out: tensor<3x256x256xf32> {iree.abi.output = 0 : i32}
) -> tensor<3x256x256xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<3x256x256xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<3x256x256xf32>) -> tensor<3x256x256xf32>
  %result = linalg.batch_matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<MFMA_F32_16x16x16_F16>, promote_operands = [0, 1], workgroup = [1, 128, 128, 0], reduction = [0, 0, 0, 64], subgroup_basis = [[1, 2, 2, 1], [0, 1, 2, 3]]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [256, 1, 1] subgroup_size = 64, {gpu_pipeline_options = #iree_gpu.pipeline_options<prefetch_num_stages = 2>}>>}
      ins(%lhs, %rhs : tensor<3x256x128xf16>, tensor<3x128x256xf16>)
      outs(%acc_zeros : tensor<3x256x256xf32>) -> tensor<3x256x256xf32>
  return %result : tensor<3x256x256xf32>
}

func.func @matmul_256x256x128_bf16n_bf16n_bf16n_bias_tile_config_128x128x64_waves2x2_mfma16(
    %lhs: tensor<128x256xbf16>,
    %rhs: tensor<256x128xbf16>,
    %bias: tensor<256xbf16>,
    %out: tensor<256x256xbf16> {iree.abi.output = 0 : i32}
) -> tensor<256x256xbf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<256x256xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<256x256xf32>) -> tensor<256x256xf32>
  %acc = linalg.matmul {compilation_info = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<MFMA_F32_16x16x16_BF16>, promote_operands = [0, 1], workgroup = [128, 128, 0], reduction = [0, 0, 64], subgroup_basis = [[2, 2, 1], [0, 1, 2]]}>, translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [256, 1, 1] subgroup_size = 64, {gpu_pipeline_options = #iree_gpu.pipeline_options<prefetch_num_stages = 2>}>>}
      ins(%rhs, %lhs : tensor<256x128xbf16>, tensor<128x256xbf16>)
      outs(%acc_zeros : tensor<256x256xf32>) -> tensor<256x256xf32>
  %result_empty = tensor.empty() : tensor<256x256xbf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc, %bias : tensor<256x256xf32>, tensor<256xbf16>)
      outs(%result_empty : tensor<256x256xbf16>) {
  ^bb0(%acc_element: f32, %bias_element: bf16, %unused: bf16):
    %bias_f32 = arith.extf %bias_element : bf16 to f32
    %with_bias = arith.addf %acc_element, %bias_f32 : f32
    %result_bf16 = arith.truncf %with_bias : f32 to bf16
    linalg.yield %result_bf16 : bf16
  } -> tensor<256x256xbf16>
  return %result : tensor<256x256xbf16>
}
