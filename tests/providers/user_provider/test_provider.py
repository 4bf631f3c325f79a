from __future__ import annotations

import itertools
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import (
    LaunchError,
    OutOfMemoryError,
    RequestError,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.providers.user_provider.kernel import RESERVED_KEYWORDS, load_kernel
from gemmetry.providers.user_provider.provider import UserProvider
from gemmetry.testing import ProviderConformance

CPU = Target(TargetKind.CPU)
NAME = "matmul_17x13x11_f32t_f32t_f32t"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def kernel(tmp_path):
    """Write a kernel file; returns the provider for its function f."""

    def write(source, function="f", **options):
        path = tmp_path / "my_kernel.py"
        path.write_text(textwrap.dedent(source))
        return UserProvider({"kernel": f"{path}:{function}", **options})

    return write


@pytest.fixture
def error(launch):
    """Launches on the CPU, and returns the worst error."""

    def found(provider, name=NAME, configuration="default"):
        return launch(provider, name, configuration, CPU).worst_error()

    return found


each_backend = pytest.mark.parametrize("backend", [
    "numpy",
    pytest.param("torch", marks=pytest.mark.skipif(find_spec("torch") is None, reason="no torch")),
])  # fmt: skip


class TestConformance(ProviderConformance):
    """The example's kernel, which takes neither factors nor an epilogue."""

    provider_class = UserProvider
    options: ClassVar = {"kernel": f"{EXAMPLES / 'my_gemm.py'}:blocked"}
    operations = ("matmul_17x13x11_f32t_f32n_f32t", "matmul_17x13x11_f64n_f64t_f64n")
    refused = (f"{NAME}_beta1", f"{NAME}_bias", "conv2d_1x8x8x3_3x3x4_f32nhwc_f32hwcf_f32nhwc")


# Right kernels


@each_backend
@pytest.mark.parametrize("out", [False, True])
def test_kernels_see_logical_shapes_whatever_the_layout(kernel, launch, backend, out):
    body = "out[...] = a @ b" if out else "return a @ b"
    provider = kernel(
        f"""
        import {backend}
        def f(a, b{", out" if out else ""}):
            assert tuple(a.shape) == (17, 11) and tuple(b.shape) == (11, 13)
            {body}
        """
    )
    for a, b, c in itertools.product("tn", repeat=3):
        launched = launch(provider, f"matmul_17x13x11_f32{a}_f32{b}_f32{c}", "default", CPU)
        assert launched.executable.writes_output is out
        assert launched.worst_error() < 1e-6, (a, b, c)


@each_backend
def test_extra_tensors_and_scalars_come_as_keywords(kernel, error, backend):
    provider = kernel(
        """
        def f(a, b, *, alpha=1.0, beta=0.0, addend=0, bias=0, residual=0, epilogue=None,
              scale_a=1, scale_b=1):
            c = alpha * (a @ b * scale_a * scale_b) + beta * addend
            given = {"bias": bias, "residual": residual}
            for step in epilogue or given:
                c = c * (c > 0) if step == "relu" else c + given[step]
            return c
        """,
        arrays=backend,
    )
    for suffix in (
        "alpha0p5_beta2", "bias", "bias_residual", "relu", "bias_relu_residual",
        "scalerow_alpha2_bias",
    ):  # fmt: skip
        assert error(provider, f"{NAME}_{suffix}") < 1e-5, suffix


def test_factors_of_blocks_come_with_one_factor_for_each_block(kernel, error):
    source = """
    import numpy as np
    def f(a, b, *, scale_a, scale_b):
        a, b, scale_a, scale_b = (x.astype(np.float32) for x in (a, b, scale_a, scale_b))
        return (a * np.repeat(scale_a, 32, -1)) @ (b * np.repeat(scale_b, 32, -2))
    """
    for formats in ("e4m3t_e5m2n_f32t_vs1x32", "e2m1n_e2m1t_f32n_vs32_e8m0"):
        assert error(kernel(source), f"matmul_9x7x96_{formats}") < 1e-5, formats


def test_torch_kernels_get_numbers_of_four_bits_in_pairs(kernel, error):
    pytest.importorskip("torch")
    source = """
    import torch
    VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    def numbers(pairs):
        return torch.stack([VALUES[(pairs & 15).long()], VALUES[(pairs >> 4).long()]], -1)
    def f(a, b, *, scale_a, scale_b):
        assert a.dtype == b.dtype == torch.uint8 and b.shape == (48, 7)
        a, b = numbers(a).flatten(-2), numbers(b.mT).flatten(-2).mT
        scale_a, scale_b = (x.float().repeat_interleave(32, d) for x, d in ((scale_a, -1),
                                                                            (scale_b, -2)))
        return (a * scale_a) @ (b * scale_b)
    """
    name = "matmul_9x7x96_e2m1t_e2m1n_f32t_vs32_e8m0"
    assert error(kernel(source, arrays="torch"), name) < 1e-5


def test_split_k_and_convolutions_need_their_keywords(kernel, error):
    source = """
    import numpy as np
    def f(a, b, *, slices=1):
        k = a.shape[1] // slices
        return sum(a[:, i * k : (i + 1) * k] @ b[i * k : (i + 1) * k] for i in range(slices))
    def conv(a, b, *, stride, padding):
        a = np.pad(a, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(a, b.shape[:2], axis=(1, 2))
        return np.einsum("npqcrs,rscf->npqf", windows[:, :: stride[0], :: stride[1]], b)
    """
    split = "matmul_splitk_8x6x20_f32t_f32t_f32t_slices4"
    conv = "conv2d_2x9x8x3_3x2x4_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc"
    assert error(kernel(source), split) < 1e-6
    assert error(kernel(source, "conv"), conv) < 1e-6
    assert "stride, padding" in (kernel(source).supports(parse_operation(conv), CPU) or "")
    assert "slices" in (kernel(source, "conv").supports(parse_operation(split), CPU) or "")


def test_configurations_of_the_module_and_of_the_request(kernel, error):
    source = """
    CONFIGURATIONS = [{"tile": 4}, {"tile": 8, "order": "i-k/j"}]
    def f(a, b, tile=1, order="ijk"):
        assert tile in (4, 8, 16)
        return a @ b
    """
    operation = parse_operation(NAME)
    provider = kernel(source)
    listed = {c.name: dict(c.parameters) for c in provider.configurations(operation, CPU)}
    assert listed == {"tile4": {"tile": 4}, "tile8_order_i_k_j": {"tile": 8, "order": "i-k/j"}}
    assert provider.parse_configuration("tile16", operation, CPU) is None
    assert error(provider, NAME, "tile8_order_i_k_j") < 1e-6
    requested = kernel(source, configurations=[{"tile": 16}])
    assert [c.name for c in requested.configurations(operation, CPU)] == ["tile16"]


def test_several_kernels_are_distinguished_by_their_function(tmp_path, error):
    path = tmp_path / "two.py"
    path.write_text("one = lambda a, b: a @ b\ndef two(a, b, *, slices=1, tile=1): return a @ b\n")
    provider = UserProvider({"kernel": [f"{path}:one", f"{path}:two"]})
    operation = parse_operation(NAME)
    split = parse_operation("matmul_splitk_8x6x20_f32t_f32t_f32t_slices4")
    assert provider.supports(split, CPU) is None
    for one, names in ((operation, ["one_default", "two_default"]), (split, ["two_default"])):
        assert [c.name for c in provider.configurations(one, CPU)] == names
    assert error(provider, NAME, "two_default") < 1e-6
    twice = UserProvider({"kernel": [f"{path}:one", f"{path}:one"]})
    with pytest.raises(RequestError, match="both have a configuration called one_default"):
        list(twice.configurations(operation, CPU))


def test_modules_next_to_the_file_can_be_imported(tmp_path, error):
    (tmp_path / "gemmetry_test_helper.py").write_text("def product(a, b): return a @ b")
    path = tmp_path / "with_helper.py"
    path.write_text(
        "from gemmetry_test_helper import product\n"
        "from .gemmetry_test_helper import product as again\n"
        "def f(a, b): return again(a, b)\n"
    )
    before = list(sys.path)
    assert error(UserProvider({"kernel": f"{path}:f"})) < 1e-6
    assert sys.path == before
    assert "with_helper" not in sys.modules


def test_an_edited_file_is_another_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "edited.py"
    digests = []
    for factor in (1, 2):
        path.write_text(f"def f(a, b):\n    return {factor} * (a @ b)\n")
        provider = UserProvider({"kernel": f"{path}:f"})
        digests.append(provider.versions()["kernel edited.py:f"])
        kernel = load_kernel(f"{path}:f")
        assert kernel.function(np.eye(2), np.eye(2))[0, 0] == factor
    assert digests[0] != digests[1]


def test_numpy_kernels_run_on_the_cpu_only_and_planning_does_not_import_them(kernel):
    provider = kernel("import numpy, sys\nsys.gemmetry_was_here = True\ndef f(a, b): ...")
    operation = parse_operation(NAME)
    assert list(provider.targets()) == [CPU]
    assert provider.supports(operation, CPU) is None
    reason = provider.supports(operation, Target(TargetKind.CUDA, "sm_90"))
    assert "my_kernel.py:f takes numpy arrays" in (reason or "")
    assert provider.supports(operation, Target(TargetKind.CPU, "znver5", None))
    assert not hasattr(sys, "gemmetry_was_here")


# Mistakes in the request


def test_without_a_kernel_it_says_what_to_add():
    assert "--kernel file.py:function" in (UserProvider().available() or "")
    with pytest.raises(RequestError, match="has no kernel"):
        list(UserProvider().configurations(parse_operation(NAME), CPU))


@pytest.mark.parametrize(
    ("configurations", "words"),
    [
        ("tile=3", "list of mappings"),
        ({"tile": 3}, "list of mappings"),
        ([3], "not a mapping"),
        ([{"not a word": 3}], "is not a keyword"),
        ([{"bias": 3}], "the operation decides 'bias'"),
        ([{"tile": [1, 2]}], "not a number, text or boolean"),
        ([{"tile": float("nan")}], "not finite"),
        ([{"tlie": 3}], "'tlie'"),
    ],
)
def test_bad_configurations_are_refused(kernel, configurations, words):
    provider = kernel("def f(a, b, tile=1): ...", configurations=configurations)
    with pytest.raises(RequestError, match=words):
        list(provider.configurations(parse_operation(NAME), CPU))


def test_a_parameter_that_nobody_gives_is_a_mistake_of_the_request(kernel, workspace):
    provider = kernel("def f(a, b, tile): ...")
    operation = parse_operation(NAME)
    with pytest.raises(RequestError, match="'tile'") as raised:
        provider.supports(operation, CPU)
    assert "CONFIGURATIONS" in raised.value.hint
    some = kernel("def f(a, b, tile, stages=1): ...", configurations=[{"tile": 3}, {"stages": 2}])
    with pytest.raises(RequestError, match=r"configuration stages2: .*'tile'"):
        list(some.configurations(operation, CPU))
    unknown = Dispatch(operation, Configuration("tile9"), "user", CPU)
    with pytest.raises(UnknownNameError, match="tile9"):
        kernel("def f(a, b): ...").build(unknown, workspace)


# Mistakes of the kernel


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "returned None"),
        ("return 3.0", "returned a float"),
        ("return (a @ b).T", r"returned a numpy.ndarray of float32, shape \(13, 17\)"),
        ("return (a @ b).astype('f8')", "of float64"),
        ("return np.lib.stride_tricks.as_strided(a, (17, 13))", "view of one of its inputs"),
        ("return np.ones(3) @ np.ones(4)", r"raised ValueError: .*my_kernel.py line 4"),
        ("raise SystemExit", "raised SystemExit"),
        ("raise type('Own', (Exception,), {})('boom')",
         r"raised Own: boom \(my_kernel.py line 4\)"),
        ("return torch.ones(3, 4) @ torch.ones(3)",
         r"my_kernel.py:f \(my_kernel.py line 4\) raised RuntimeError: "),
        ("raise MemoryError", "ran out of memory"),
    ],
)  # fmt: skip
def test_bad_results_are_launch_errors(kernel, error, body, words):
    backend = "torch" if "torch" in body else "numpy as np"
    provider = kernel(f"import {backend}\n\ndef f(a, b):\n    {body}\n")
    expected = OutOfMemoryError if "MemoryError" in body else LaunchError
    with pytest.raises(expected, match=words):
        error(provider)


@pytest.mark.parametrize(
    ("body", "is_right"),
    [("return a @ b", False), ("return out.copy()", False), ("return out[:]", True)],
)
def test_a_kernel_with_out_must_use_it_and_may_return_it(kernel, error, body, is_right):
    provider = kernel(f"def f(a, b, out):\n    out[...] = a @ b\n    {body}\n")
    if is_right:
        assert error(provider) < 1e-6
    else:
        with pytest.raises(LaunchError, match="takes out= but returned"):
            error(provider)


# The page and its examples


def test_every_keyword_is_documented():
    page = (EXAMPLES.parent / "docs" / "my-kernel.md").read_text(encoding="utf-8")
    for keyword in RESERVED_KEYWORDS - {"a", "b"}:
        assert f"`{keyword}`" in page, keyword


@pytest.mark.parametrize(
    ("example", "name", "wrong", "right"),
    [
        ("my_gemm", "257x129x65", (), ("tile32", "tile64", "tile128")),
        ("my_wrong_gemm", "257x129x65", ("tile32", "tile64"), ("tile65",)),
        ("my_wrong_gemm", "128x128x128", (), ("tile32",)),
    ],
)
def test_the_wrong_example_is_wrong_where_a_partial_block_is_left(
    error, example, name, wrong, right
):
    provider = UserProvider({"kernel": f"{EXAMPLES / example}.py:blocked"})
    for configuration in (*wrong, *right):
        found = error(provider, f"matmul_{name}_f32t_f32t_f32t", configuration)
        assert found > 1e-3 if configuration in wrong else found < 1e-5


# CUDA C++

H200 = Target(TargetKind.CUDA, "sm_90", None)
CUDA_NAME = "matmul_17x13x11_bf16t_bf16n_bf16t"
needs_bindings = pytest.mark.skipif(find_spec("cuda") is None, reason="no cuda-bindings")


@needs_bindings
def test_a_cuda_kernel_is_compiled_for_other_machines(workspace):
    provider = UserProvider({"kernel": f"{EXAMPLES / 'my_gemm.cu'}:tiled"})
    assert H200 in provider.targets()
    assert provider.compiles_ahead(H200) and not provider.compiles_ahead(CPU)
    operation, other = map(parse_operation, (CUDA_NAME, "matmul_17x13x11_f32t_f32n_f32t"))
    assert provider.supports(operation, H200) is None
    assert "NVIDIA GPUs" in (provider.supports(operation, CPU) or "")
    assert list(provider.configurations(operation, CPU)) == []
    configurations = list(provider.configurations(operation, H200))
    assert [item.name for item in configurations] == ["TILE16", "TILE32"]
    dispatches = [Dispatch(operation, item, "user", H200) for item in configurations]
    dispatches.append(Dispatch(other, configurations[0], "user", H200))
    *right, refused = provider.compile(dispatches, workspace)
    for one, tile in zip(right, (16, 32), strict=True):
        facts = one.facts
        assert (facts.compiled_for, facts.matrix_instruction) == ("sm_90a", "none")
        assert facts.registers and facts.spill_bytes == 0
        assert facts.shared_memory_bytes == 2 * tile * (tile + 1) * 4
        for path in (facts.assembly_path, facts.binary_path, facts.tool_output_path):
            assert (workspace.generated.parent / path).stat().st_size > 100
    assert list((workspace.generated / "user" / "cache").glob("my_gemm-*.cubin"))
    assert "does not list these formats" in str(refused.error)
    with pytest.raises(UnsupportedError):
        provider.build(dispatches[0], workspace)


@needs_bindings
def test_cuda_and_python_kernels_stand_side_by_side(workspace):
    texts = [f"{EXAMPLES / 'my_gemm.cu'}:tiled", f"{EXAMPLES / 'my_gemm.py'}:blocked"]
    provider = UserProvider({"kernel": texts})
    for name, target, names in (
        (CUDA_NAME, H200, ["tiled_TILE16", "tiled_TILE32"]),
        (NAME, CPU, ["blocked_tile32", "blocked_tile64", "blocked_tile128"]),
    ):
        operation = parse_operation(name)
        assert provider.supports(operation, target) is None
        assert [item.name for item in provider.configurations(operation, target)] == names
    assert "cross-compiled" in (provider.supports(parse_operation(NAME), H200) or "")
    digests = {name for name in provider.versions() if name.startswith("kernel ")}
    assert digests == {"kernel my_gemm.cu:tiled", "kernel my_gemm.py:blocked"}
    python = Dispatch(parse_operation(NAME), Configuration("blocked_tile32"), "user", H200)
    [compiled] = provider.compile([python], workspace)
    assert compiled.error is None


@needs_bindings
def test_a_folder_of_machine_code_is_compiled_for_its_architecture(workspace):
    provider = UserProvider({"kernel": str(EXAMPLES / "cubins")})
    operation = parse_operation("matmul_128x64x64_bf16t_bf16n_bf16t")
    configurations = list(provider.configurations(operation, H200))
    assert [one.name for one in configurations] == ["cute_default", "nvcc_default"]
    dispatches = [Dispatch(operation, one, "user", H200) for one in configurations]
    assert [one.error for one in provider.compile(dispatches, workspace)] == [None, None]
    other = Target(TargetKind.CUDA, "sm_100", None)
    assert "sm_100 does not run" in (provider.supports(operation, other) or "")
