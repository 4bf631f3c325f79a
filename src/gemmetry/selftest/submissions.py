"""Submissions to the judge.

Attacks try to deceive it: each is a way in which kernels were found to cheat, or could. None may be
judged ``ok``. Each source defines ``f(a, b)`` for the product of two row-major matrices of f32.
Where an attack finds nothing to exploit, it returns zeros or whatever it has, as a cheat would.

Right submissions are of many kinds, and none may be called wrong, cheated or refused. Products:
every way to compute one, in every format, for row-major and column-major operands. Other functions:
pairs of a reference and another algorithm, in the three foreign forms of tasks.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TASK = "matmul_64x48x40_f32t_f32t_f32t"
"""Operation that the attacks claim to compute."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile submission."""

    name: str
    what: str
    source: str

    @property
    def text(self) -> str:
        """The submission's file."""
        return f"import torch\n\n{self.source}"


def _attacks(file: str) -> Iterator[Attack]:
    """Attacks of a text file: a heading with name and description, and the source below it."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    for part in text.removeprefix("## ").split("\n## "):
        heading, source = part.split("\n", 1)
        name, what = heading.split(": ", 1)
        yield Attack(name, what, f"{source.rstrip()}\n")


ATTACKS = tuple(_attacks("attacks.txt"))

GPU_ATTACKS = tuple(_attacks("gpu_attacks.txt"))
"""Attacks that need a GPU; ``calls_a_library`` needs a task that forbids libraries."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right submission and its task."""

    name: str
    kind: str
    """What CI takes one of."""
    task: str
    """An operation's name, or the file of `files` that is the task."""
    submission: str
    """The file of `files` with the submission, and its function."""
    files: Mapping[str, str] = field(repr=False)

    def write(self, folder: Path) -> tuple[str, str]:
        """Write the files; returns the task and the submission, as `gemmetry judge` takes them."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        task = str(folder / self.task) if self.task in self.files else self.task
        return task, str(folder / self.submission)


_PRODUCTS = {
    "product": "return (a @ b).to(kind)",
    "einsum": "return torch.einsum('ik,kj->ij', a, b).to(kind)",
    "linear": "return torch.nn.functional.linear(a, b.t()).to(kind)",
    "batched": "return torch.bmm(a[None], b[None])[0].to(kind)",
    "addmm": "return torch.addmm(a.new_zeros(len(a), b.shape[1]), a, b).to(kind)",
    "transposed": "return (b.t() @ a.t()).t().to(kind).contiguous()",
    "reversed": "return (a.flip(1) @ b.flip(0)).to(kind)",
    "outer": "return sum(a[:, k, None] * b[k] for k in range(a.shape[1])).to(kind)",
    "rows": "return torch.stack([row @ b for row in a]).to(kind)",
    "split_k": "h = len(b) // 2; return (a[:, :h] @ b[:h] + a[:, h:] @ b[h:]).to(kind)",
    "padded": "p = torch.nn.functional.pad; return (p(a, (0, 3)) @ p(b, (0, 0, 0, 3))).to(kind)",
    "numpy": "return torch.from_numpy(a.numpy() @ b.numpy()).to(kind)",
    "double": "return (a.double() @ b.double()).to(kind)",
}
_FORMATS = ("f32", "f16", "bf16", "f64")
_WIDE = "a, b = (x.float() if x.element_size() < 4 else x for x in (a, b))"


def _products() -> Iterator[Right]:
    for (name, body), dtype in itertools.product(_PRODUCTS.items(), _FORMATS):
        layout = "n" if len(name) % 2 else "t"
        turned = "b = b.t()\n    " if layout == "n" else ""
        text = (
            f"import torch\n\ndef f(a, b):\n    kind = a.dtype\n    {_WIDE}\n    {turned}{body}\n"
        )
        task = f"matmul_32x24x40_{dtype}t_{dtype}{layout}_{dtype}t"
        yield Right(f"{name}_{dtype}", name, task, "mine.py:f", {"mine.py": text})


_FUNCTIONS = [
    # name, inputs, reference, another way
    ("relu", "x", "torch.relu(x)", "torch.where(x > 0, x, torch.zeros_like(x))"),
    ("sigmoid", "x", "torch.sigmoid(x)", "1 / (1 + torch.exp(-x))"),
    ("tanh", "x", "torch.tanh(x)",
     "torch.sign(x) * -(e := torch.expm1(-2 * x.abs())) / (2 + e)"),
    ("silu", "x", "torch.nn.functional.silu(x)", "x * torch.sigmoid(x)"),
    ("gelu", "x", "torch.nn.functional.gelu(x)", "x * torch.special.ndtr(x)"),
    ("softmax", "x", "torch.softmax(x, -1)",
     "(e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True)"),
    ("log_softmax", "x", "torch.log_softmax(x, -1)", "x - torch.logsumexp(x, -1, keepdim=True)"),
    ("layer_norm", "x", "torch.nn.functional.layer_norm(x, x.shape[-1:])",
     "(d := x - x.mean(-1, keepdim=True)) * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5)"),
    ("rms_norm", "x, w", "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w",
     "x * w / torch.sqrt(torch.linalg.vecdot(x, x)[:, None] / x.shape[-1] + 1e-6)"),
    ("sum", "x", "x.sum(-1)", "x @ x.new_ones(x.shape[-1])"),
    ("maximum", "x", "x.amax(-1)", "torch.sort(x, -1).values[:, -1]"),
    ("cumulative_sum", "x", "torch.cumsum(x, -1)",
     "x @ torch.ones_like(x[0]).expand(x.shape[-1], -1).triu()"),
    ("variance", "x", "x.var(-1)",
     "((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / (x.shape[-1] - 1)"),
    ("add", "x, y", "x + y", "torch.stack([x, y]).sum(0)"),
    ("gated", "x, y", "torch.nn.functional.silu(x) * y", "x * y / (1 + torch.exp(-x))"),
    ("attention", "x, y", "torch.softmax(x @ y.t() / 8, -1) @ y",
     "torch.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None], scale=0.125)[0]"),
    ("sort", "x", "torch.sort(x, -1).values", "torch.topk(x, x.shape[-1], -1).values.flip(-1)"),
    ("norm", "x", "torch.linalg.norm(x, dim=-1)", "(x * x).sum(-1).sqrt()"),
]  # fmt: skip


def _kernelbench(inputs: str, reference: str, other: str) -> dict[str, str]:
    count = inputs.count(",") + 1
    model = (
        "import torch\n\n\nclass {name}(torch.nn.Module):\n"
        f"    def forward(self, {inputs}):\n        return {{body}}\n"
    )
    makes = f"\n\ndef get_inputs():\n    return [torch.randn(16, 32) for _ in range({count})]\n"
    task = model.format(name="Model", body=reference) + makes
    return {"problem.py": task, "new.py": model.format(name="ModelNew", body=other)}


def _gpumode(inputs: str, reference: str, other: str) -> dict[str, str]:
    count = inputs.count(",") + 1
    made = ", ".join(["torch.randn(n, 32, generator=g)"] * count)
    function = (
        "import torch\n\n\ndef {name}(data):\n" + f"    {inputs} = data\n    return {{body}}\n"
    )
    return {
        "task.yml": "tests:\n  - {n: 16, seed: 1}\n",
        "reference.py": function.format(name="ref_kernel", body=reference)
        + "\n\ndef generate_input(n, seed):\n    g = torch.Generator().manual_seed(seed)\n"
        f"    return {made}\n",
        "submission.py": function.format(name="custom_kernel", body=other),
    }


def _flashinfer(inputs: str, reference: str, other: str) -> dict[str, str]:
    function = f"import torch\n\n\ndef run({inputs}):\n    return "
    spec = {"shape": ["n", "d"], "dtype": "float32"}
    definition = {
        "name": "task", "op_type": "other", "reference": f"{function}{reference}\n",
        "axes": {"n": {"type": "const", "value": 16}, "d": {"type": "const", "value": 32}},
        "inputs": dict.fromkeys(inputs.split(", "), spec), "outputs": {"out": spec},
    }  # fmt: skip
    solution = {
        "name": "mine", "definition": "task", "spec": {"entry_point": "main.py::run"},
        "sources": [{"path": "main.py", "content": f"{function}{other}\n"}],
    }  # fmt: skip
    return {"definition.json": json.dumps(definition), "solution.json": json.dumps(solution)}


def _functions() -> Iterator[Right]:
    """Correct functions in the three forms; files begin with the task and end with the
    submission."""
    forms = {"kernelbench": _kernelbench, "gpumode": _gpumode, "flashinfer": _flashinfer}
    for name, *texts in _FUNCTIONS:
        for form, make in forms.items():
            if form == "gpumode" and "," not in texts[0]:
                continue  # one argument is not passed as a tuple
            files = make(*texts)
            task, *_, submission = files
            yield Right(f"{name}_{form}", form, task, submission, files)


RIGHT = (*_products(), *_functions())
