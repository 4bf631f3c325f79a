"""A realistic invented experiment: providers, dtypes, every outcome, hostile names. Cases of a test
are in a text file of the same name, see ``tests/cases.py``."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import importlib.util
import io
import json
import re
import shutil
import zlib
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import numpy as np
import pytest
from rich.console import Console

import gemmetry
from gemmetry.domain.dispatch import split_dispatch_name
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import (
    BuildFacts,
    Environment,
    Measurement,
    Record,
    ResultSet,
    Telemetry,
    Verdict,
)

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
    "--disable-dev-shm-usage", "--window-size=1400,1000",
)  # fmt: skip

_SPEC = importlib.util.spec_from_file_location("cases", Path(__file__).parents[1] / "cases.py")
cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)


class Case(NamedTuple):
    """A case of ``NAME.txt`` for a test in ``test_NAME.py``."""

    path: Path
    title: str

    def calls(self) -> list[tuple[str, list[Any], dict[str, Any]]]:
        """Each line of input: what it is, and its arguments without and with names."""
        return [cases.arguments(line) for line in cases.read(self.path)[self.title][0]]

    def check(
        self, found: Iterable[str | tuple[object, dict[str, Any]]], here: Path = Path("/nowhere")
    ) -> None:
        """Compare lines, or labels with values, with those of the case; paths are below `here`."""
        lines = (one if isinstance(one, str) else cases.shown(*one) for one in found)
        cases.check(self.path, self.title, [line.replace(f"{here}/", "") for line in lines])


def _cases_of(module: Path) -> Path:
    return module.with_name(f"{module.stem.removeprefix('test_')}.txt")


@pytest.fixture
def case_named(request):
    """The case of the test's module with a title."""
    return lambda title: Case(_cases_of(request.path), title)


def pytest_generate_tests(metafunc):
    """Run what takes a `case` once for each case of its module, if it has a file of them."""
    path = _cases_of(metafunc.definition.path)
    if "case" in metafunc.fixturenames and path.exists():
        found = cases.read(path)
        metafunc.parametrize("case", [Case(path, title) for title in found], ids=found)


EXPERIMENTS = Path(__file__).with_name("experiments.txt")

HOSTILE = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://x")'

ENVIRONMENT = Environment(
    hostname="bench-7",
    operating_system="Linux 6.1",
    python="3.11.7",
    cpu="Example CPU @ 2.80GHz",
    cpu_count=2,
    memory_bytes=25_000_000_000,
    packages={"gemmetry": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
    git_revision="0123abc",
    variables={"OMP_NUM_THREADS": "2"},
)

ENVIRONMENT_ID = "0123456789ab"

PEAK_FLOPS_PER_S = {"f32": 450e9, "bf16": 900e9, "s8": 1800e9}
BYTES_PER_S = 25e9


def make_record(
    operation: str,
    configuration: str = "default",
    *,
    provider: str = "torch",
    gflops: float | None = 200.0,
    outcome: Outcome = Outcome.OK,
    measured: dict[str, object] | None = None,
    **fields,
) -> Record:
    """A record with a plausible measurement, whose numbers depend on its arguments alone.

    `measured` has other values of the measurement.
    """
    parsed, _ = split_dispatch_name(operation)
    dispatch = f"{operation}_{configuration}"
    measurement = fraction = None
    name = parsed.signature.lhs.name
    if outcome is Outcome.OK and gflops is not None:
        median = parsed.flops / gflops
        measurement = Measurement(
            median_ns=median, ci_low_ns=median * 0.991, ci_high_ns=median * 1.013,
            min_ns=median * 0.97, p95_ns=median * 1.08, sample_count=60, launches_per_sample=4,
            rounds=3, method="wall_clock", stop_reason="interval", input_sets=5,
            first_launch_ns=median * 3, telemetry=Telemetry(load_average=0.4),
            marks=tuple(fields.pop("marks", ())),
        )  # fmt: skip
        measurement = dataclasses.replace(measurement, **measured or {})
        if name in PEAK_FLOPS_PER_S:
            allowed = min(PEAK_FLOPS_PER_S[name], parsed.flops / parsed.bytes * BYTES_PER_S)
            fraction = gflops * 1e9 / allowed
    verdict = Verdict(
        status=Verification.PASSED if measurement else Verification.NOT_VERIFIED,
        checks={"values": "passed", "repeat": "passed", "red_zones": "not applicable: host"},
        max_error_ratio=0.031, relative_frobenius_error=2.1e-7, signed_bias=-1.2e-9,
        accuracy_class="f32 accumulation", zero_share=0.0,
    )  # fmt: skip
    values = {
        "target": "cpu", "device": "cpu", "stage": None, "reason": "", "verdict": verdict,
        "distribution": "offset_uniform", "seed": 42, "facts": BuildFacts(),
        "roofline_fraction": fraction, "environment_id": ENVIRONMENT_ID,
        "roofline_source": "measured on this machine" if fraction else "",
        "reproduce": f"gemmetry profile --providers {provider} --dispatches {dispatch}", **fields,
    }  # fmt: skip
    return Record(
        dispatch=dispatch, provider=provider, operation=operation, configuration=configuration,
        outcome=outcome, flops=parsed.flops, bytes=parsed.bytes, measurement=measurement, **values,
    )  # fmt: skip


def fake_samples(record: Record) -> list[float]:
    """Samples whose median is near the record's, with a right tail; the same on every call."""
    if record.measurement is None:
        return []
    digest = hashlib.sha256(record.dispatch.encode() + record.provider.encode()).digest()
    noise = np.random.default_rng(list(digest[:8])).gamma(2.0, 0.008, 60)
    return [float(value) for value in record.measurement.median_ns * (0.985 + noise)]


_TILES = ("64x64_32", "128x64_32", "64x128_64", "128x128_16")
_SPEEDS = {"f32": 210.0, "bf16": 380.0, "s8": 700.0}
_OPERANDS = {"f32": "f32t_f32t_f32t", "bf16": "bf16t_bf16t_f32t", "s8": "s8t_s8t_s32t"}


def _measured_records() -> list[Record]:
    records = []
    shapes = [(m, n, 512) for m in (128, 256, 512, 1024) for n in (128, 256, 512, 1024)]
    for dtype, operands in _OPERANDS.items():
        chosen = [*shapes, (257, 129, 65)] if dtype == "f32" else [(512, 512, 512), (257, 129, 65)]
        for m, n, k in chosen:
            operation = f"matmul_{m}x{n}x{k}_{operands}"
            size = m * n * k / (m * n * k + 4e6)
            factors = {
                ("torch", "default"): 1.0,
                ("numpy", "default"): 0.9 if dtype == "f32" else 0.05,
                ("iree", "default"): 0.6,
                **{("iree", f"tile_{tile}"): 0.8 + 0.15 * i for i, tile in enumerate(_TILES)},
            }
            for (provider, configuration), factor in factors.items():
                # A realistic spread that is the same in every run.
                jitter = 0.9 + (zlib.crc32(f"{operation}{provider}".encode()) % 200) / 1000
                records.append(make_record(
                    operation, configuration, provider=provider,
                    gflops=_SPEEDS[dtype] * size * factor * jitter,
                ))  # fmt: skip
    return records


def record_of(operation: str, plain: list[str], given: dict[str, Any]) -> Record:
    """The record of arguments of :func:`make_record` as text."""

    def typed(kind, values):
        hints = get_type_hints(kind)
        return {name: msgspec.convert(value, hints[name]) if name in hints else value
                for name, value in values.items()}  # fmt: skip

    measured = typed(Measurement, given.pop("measured", {}))
    return make_record(operation, *plain, measured=measured, **typed(Record, given))


def records_of(title: str) -> list[Record]:
    """Records of ``experiments.txt``."""
    return [record_of(*call) for call in Case(EXPERIMENTS, title).calls()]


@pytest.fixture(name="record_of", scope="session")
def record_of_fixture():
    return record_of


@pytest.fixture(name="records_of", scope="session")
def records_of_fixture():
    return records_of


@pytest.fixture(scope="session")
def result_set() -> ResultSet:
    """109 measured dispatches of three providers, and one of every outcome; nothing changes it."""
    records = [*_measured_records(), *records_of("others")]
    return ResultSet(
        title=f"demo {HOSTILE}",
        records=records,
        environments={ENVIRONMENT_ID: ENVIRONMENT},
        samples=fake_samples,
        command=f"gemmetry profile --tags 'note={HOSTILE}' --output data.csv",
        path="gemmetry-out/demo-0123456789",
        created="2026-11-20T10:11:12Z",
    )


@pytest.fixture
def small_result_set() -> ResultSet:
    """Few records, for pinned texts."""
    return ResultSet(
        title="small", records=records_of("small"), environments={ENVIRONMENT_ID: ENVIRONMENT},
        samples=fake_samples, command="gemmetry profile --providers iree,torch",
        created="2026-11-20T10:11:12Z",
    )  # fmt: skip


@pytest.fixture(name="make_record")
def make_record_fixture():
    """The function that makes records."""
    return make_record


@pytest.fixture(name="console_text")
def console_text_fixture():
    """What a printer writes without colours; what is for a terminal fits its width."""

    def run(print_to, width: int = 80, *, terminal=False) -> str:
        console = Console(width=width, file=io.StringIO(), color_system=None,
                          force_terminal=terminal, highlight=False)  # fmt: skip
        print_to(console)
        lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
        assert not terminal or max(map(len, lines)) <= width
        return "\n".join(lines) + "\n"

    return run


_HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>", re.DOTALL)
_BREAKS = re.compile(r"</(?:tr|p|h\d|li|div|section|summary|pre|ul|title|figcaption|dd)>")


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(name="dumped", scope="session")
def dumped_fixture():
    """The values as lines of JSON, with floats of five digits."""

    def run(*values) -> str:
        return "".join(f"{json.dumps(_rounded(one), ensure_ascii=False)}\n" for one in values)

    return run


@pytest.fixture(name="page_data", scope="session")
def page_data_fixture():
    """The data that a page's scripts read."""
    return lambda page: json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(name="page_text", scope="session")
def page_text_fixture():
    """The texts of a page's elements, each after its class; without scripts and styles."""

    def run(page: str) -> str:
        body = _BREAKS.sub("\n", _HIDDEN.sub("", page))
        body = re.sub(r"<svg\b.*?</svg>|<wbr>", "", body, flags=re.DOTALL)
        body = re.sub(r'<\w+\b[^>]*?\bclass="([^"]*)"[^>]*>', r" .\1. ", body)
        lines = (" ".join(line.split()) for line in re.sub(r"<[^>]*>", " ", body).splitlines())
        text = html.unescape("".join(f"{line}\n" for line in lines if line))
        return text.replace(f"gemmetry {gemmetry.__version__}", "gemmetry {version}")

    return run


DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(name="report_of", scope="session")
def report_of_fixture():
    """Makes the report of traces that are given by their paths."""
    from gemmetry.documents.tracelens_workbooks import TraceLensSheets
    from gemmetry.traces.reading import read_all
    from gemmetry.traces.report import build_report

    def make(*paths, with_lanes=True, **options):
        errors = {}
        traces = read_all([DATA / path for path in paths], errors, use_cache=False)
        return build_report(
            traces, errors, sheets=TraceLensSheets(**options), with_lanes=with_lanes
        )

    return make


@pytest.fixture(name="job_report", scope="session")
def job_report_fixture(report_of):
    """Of four ranks of a job."""
    return report_of("collectives/h200x4")


def _events_named(number, text, *, with_gpu):
    """An operator, another in it, a launch and kernels with `text` in all their names."""
    start, short = 100 * number, text[:300]
    place = {"ph": "X", "pid": text, "tid": text, "ts": start, "dur": 50}
    texts = dict.fromkeys(("Input type", "Concrete Inputs", "Input Strides"), (text,))
    args = {"External id": number + 1, "Input Dims": [[text], [8, 8]], **texts}
    yield {**place, "cat": "cpu_op", "name": text, "args": args}
    args = {**args, "Input Dims": [[8, 8]] * 2}
    inner = {**place, "ts": start + 5, "dur": 20}
    yield {**inner, "cat": "cpu_op", "name": f"{short}::gemm", "args": args}
    call = {"correlation": number + 1}
    yield {**place, "cat": "cuda_runtime", "name": text, "ts": start + 10, "args": call}
    kind = text if number % 2 else "allreduce"
    run = {**call, "device": 0, "stream": number % 5, "dtype": text, "Collective name": kind,
           "Process Group Name": text, "In msg nelems": 8, "Group size": 2}  # fmt: skip
    for name in (text, f"{short}_gemm", f"ncclDevKernel_AllReduce{short}") * with_gpu:
        yield {**place, "cat": "kernel", "name": name, "ts": start + 40, "args": run}


@pytest.fixture(name="report_named")
def report_named_fixture(report_of, tmp_path):
    """Makes the report of two ranks in which everything that can have a name has each of `texts`
    for one, and of a file that is no trace."""

    def make(texts, *, with_gpu=True, file="rank", broken="{"):
        joined = "".join(texts)[:9000]
        events = [one for number, text in enumerate(texts)
                  for one in _events_named(number, text, with_gpu=with_gpu)]  # fmt: skip
        # An event that cannot be used, so that the page shows its name too.
        events.append({"ph": "X", "cat": "kernel", "name": joined, "ts": "x"})
        head = {"host_name": texts[0], "deviceProperties": [{"id": 0, "name": joined}],
                "trace_id": texts[1], "traceEvents": events}  # fmt: skip
        paths = [tmp_path / f"{file}{part}.json" for part in (0, 1, "")]
        for rank, path in enumerate(paths[:2]):
            here = {"distributedInfo": {"rank": rank, "world_size": 2}}
            path.write_text(json.dumps({**here, **head}))
        paths[2].write_text(broken)
        return report_of(*paths)

    return make


@pytest.fixture(name="hostile_report")
def hostile_report_fixture(report_named):
    """Of a trace whose names are scripts, formulas, control characters and very long."""
    texts = (HOSTILE, FORMULA, "\x1b[31mred\x00", "x" * 200_000, "-1+1|cmd", "\ud800")
    return report_named(texts, file=f"{FORMULA.replace('/', '')}<b>")


@pytest.fixture(scope="session")
def elements():
    """The elements of a page: tags with their attributes."""

    def parse(page):
        found = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
        parser.feed(page)
        return found

    return parse


@pytest.fixture(scope="session")
def loads_nothing(elements):
    """Asserts that a page asks neither the network nor other files for anything."""

    def check(page):
        for tag, attributes in elements(page):
            assert tag not in ("iframe", "object", "embed", "base")
            for name in ("src", "href", "action"):
                assert (attributes.get(name) or "#").startswith(("#", "data:"))
        assert "default-src 'none'" in page
        assert "@import" not in "".join(re.findall("<style.*?</style>", page, re.DOTALL))

    return check


@pytest.fixture(name="kernels")
def kernels_fixture():
    """Makes the all-reduces of one rank of two, which begin `shift` ns later than another's."""
    from gemmetry.traces.collectives.summary import Collective, Group

    def make(shift, durations=(2000, 2000)):
        group = Group("0", (0, 1), 2)
        return tuple(
            Collective(
                row=i, op="all_reduce", dtype="Half", elements=1000, in_elements=1000,
                out_elements=1000, group=group, algorithm="tree", protocol=None, source="kernel",
                name="nccl", stream=1, device=0, start_ns=10**18 + i * 10**6 + shift,
                duration_ns=duration,
            )
            for i, duration in enumerate(durations)
        )  # fmt: skip

    return make


@pytest.fixture(name="trace")
def trace_fixture():
    """Makes a rank of a job of two, with its communication kernels."""
    from gemmetry.traces.jobs import RankTrace

    def make(rank, ones, folder="job"):
        return RankTrace(
            file=Path(f"{folder}/rank{rank}.json"), rank=rank, rank_source="trace", world_size=2,
            job=None, host=None, base_ns=10**18, span=(0, 0), collectives=ones, partial=False,
            problems=(),
        )  # fmt: skip

    return make


@pytest.fixture(name="found")
def found_fixture(kernels, trace):
    """Makes a job of two ranks, the second of which begins `shift` ns later."""
    from gemmetry.traces.collectives.matching import analyse_jobs

    return lambda shift=500: analyse_jobs([trace(0, kernels(0)), trace(1, kernels(shift))])


@pytest.fixture(scope="session")
def scripts():
    """The scripts of ``browser.js`` by name."""
    text = Path(__file__).with_name("browser.js").read_text("utf-8")
    shared, *parts = re.split(r"^// == (.+)$", text, flags=re.MULTILINE)
    return {name: shared + body for name, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Headless Chromium, driven by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    running = webdriver.Chrome(options=options, service=service)
    yield running
    running.quit()
