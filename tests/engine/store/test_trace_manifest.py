from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil

import pytest

from gemmetry.domain.errors import JournalDamagedError, Outcome
from gemmetry.domain.record import Environment, TraceFacts
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.recording import TraceManifest, key_of

SCHEDULE = TraceSchedule()


def read(folder):
    return json.loads((folder / "traces_matmul" / "manifest.json").read_text())


def entries(folder):
    return read(folder)["configurations"]


@pytest.fixture
def traced(make_record):
    """A record of traces in these files."""

    def make(*files):
        facts = TraceFacts(
            folder="traces_matmul/config_0001", files=files, operators=3, kernels=1,
            input_sha256={"lhs": "a"}, output_sha256="b",
        )  # fmt: skip
        return make_record(trace=facts, measurement=None)

    return make


def test_numbers_stay_when_the_grid_grows_or_shrinks_or_is_reordered(tmp_path):
    for names, expected in (("ab", "ab"), ("cba", "abc"), ("d", "abcd")):
        keys = [("null:0", "null", name) for name in names]
        TraceManifest(tmp_path).begin(keys, [], SCHEDULE)
        numbers = {one["dispatch"]: one["number"] for one in entries(tmp_path)}
        assert numbers == {name: place for place, name in enumerate(expected, 1)}


def test_the_same_dispatch_on_another_device_has_another_number(tmp_path):
    both = [("cuda:0", "torch", "x"), ("cuda:1", "torch", "x")]
    manifest = TraceManifest(tmp_path)
    manifest.begin(both, [], SCHEDULE)
    folders = [manifest.folder(key) for key in both]
    assert folders == ["traces_matmul/config_0001", "traces_matmul/config_0002"]


def test_an_entry_says_what_its_folder_holds(tmp_path, traced):
    """Records of an earlier run are taken over, and those from before ``--fresh`` are not."""
    record = traced("CPU_trace.json")
    key, here = key_of(record), {"e": Environment(packages={"torch": "2.13"})}
    manifest = TraceManifest(tmp_path, lambda: here)
    manifest.begin([key], [], SCHEDULE)
    assert entries(tmp_path)[0]["outcome"] is None
    manifest.add(record)
    manifest.close()
    (entry,) = entries(tmp_path)
    assert (entry["outcome"], entry["files"]) == ("ok", ["CPU_trace.json"])
    assert (entry["input_sha256"], entry["output_sha256"]) == ({"lhs": "a"}, "b")
    assert entry["schedule"]["repeats"] == 5
    assert (entry["record"]["lhs_dtype"], entry["record"]["layouts"]) == ("f32", "tt")
    assert read(tmp_path)["environments"]["e"]["packages"] == {"torch": "2.13"}
    for records, operators in (([record], 3), ([], None)):
        manifest.begin([key], records, SCHEDULE)
        assert entries(tmp_path)[0]["operators"] == operators


def test_the_folder_of_what_was_not_recorded_goes(tmp_path, traced, make_record):
    record = traced("CPU_trace.json")
    manifest = TraceManifest(tmp_path)
    manifest.begin([key_of(record)], [], SCHEDULE)
    folder = tmp_path / manifest.folder(key_of(record))
    folder.mkdir()
    manifest.add(record)
    assert folder.is_dir()
    manifest.add(make_record(Outcome.CRASH, reason="gone"))
    assert not folder.exists()
    manifest.write()
    (entry,) = entries(tmp_path)
    assert (entry["outcome"], entry["record"]["reason"]) == ("crash", "gone")
    assert (entry["files"], entry["output_sha256"]) == ([], None)


GRID = {
    "batch_matmul_4x8x16x32_s8n_s8t_s32t": (8, 16, 32, "int8", True, False, 4),
    "matmul_8x16x32_f32t_f32n_f32t": (8, 16, 32, "fp32", False, True, 1),
    "conv2d_1x8x8x4_3x3x4_bf16nhwc_bf16hwcf_bf16nhwc": (36, 4, 36, "bf16", None, None, 1),
}


def test_an_entry_has_the_grid_tracing_documents_names(tmp_path):
    keys = [("cpu", "torch", f"{name}_default") for name in GRID]
    TraceManifest(tmp_path).begin(keys, [], TraceSchedule(chakra_all_steps=True))
    names = ("m", "n", "k", "dtype", "transpose_a", "transpose_b", "batch_size")
    found = entries(tmp_path)
    assert [tuple(one[name] for name in names) for one in found] == list(GRID.values())
    assert {(one["device"], one["chakra_all_steps"]) for one in found} == {("cpu", True)}
    schedule = {"wait_steps": 1, "warmup_steps": 3, "active_steps": 1, "repeats": 5}
    assert found[0]["schedule"] == schedule


FILES = ("CPU_trace.json", "repeat_01.pt.trace.json", "repeat_02.pt.trace.json")


@pytest.fixture
def twice(traced):
    return dataclasses.replace(traced(*FILES), environment_id="here")


@pytest.mark.parametrize(("schedule", "kept_of", "kept"), [
    (TraceSchedule(repeats=5), "here", 2),
    (TraceSchedule(repeats=5), "elsewhere", 0),
    (TraceSchedule(repeats=5), None, 0),
    (TraceSchedule(repeats=5, chakra_all_steps=True), "here", 0),
    (TraceSchedule(repeats=2), "here", 0),
])  # fmt: skip
def test_which_repeats_stay_while_more_are_recorded(tmp_path, twice, schedule, kept_of, kept):
    key = key_of(twice)
    TraceManifest(tmp_path).begin([key], [twice], TraceSchedule(repeats=2))
    for _ in range(2):  # the second time as after a kill
        manifest = TraceManifest(tmp_path)
        manifest.begin([key], [], schedule, kept_of=kept_of)
        assert manifest.kept(key) == kept


def test_what_fails_to_grow_keeps_what_it_had(tmp_path, twice, make_record):
    key = key_of(twice)
    manifest = TraceManifest(tmp_path)
    manifest.begin([key], [twice], TraceSchedule(repeats=2))
    folder = tmp_path / manifest.folder(key)
    folder.mkdir()
    for name in (*FILES, "repeat_03.pt.trace.json"):
        (folder / name).touch()
    manifest.begin([key], [], TraceSchedule(repeats=5), kept_of="here")
    manifest.add(make_record(Outcome.TIMEOUT))
    manifest.write()
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    (entry,) = entries(tmp_path)
    assert (entry["outcome"], entry["files"]) == ("timeout", list(FILES))


def test_one_that_cannot_be_opened_is_refused(tmp_path):
    path = tmp_path / "traces_matmul" / "manifest.json"
    path.mkdir(parents=True)
    with pytest.raises(JournalDamagedError, match=os.strerror(errno.EISDIR)):
        TraceManifest(tmp_path)
    shutil.rmtree(path.parent)
    path.parent.touch()
    with pytest.raises(JournalDamagedError, match=os.strerror(errno.ENOTDIR)):
        TraceManifest(tmp_path)


@pytest.mark.parametrize("text", ["{", '{"schema_version": 99}', '{"configurations": [{}]}'])
def test_one_that_does_not_read_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "traces_matmul" / "manifest.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(JournalDamagedError, match=r"manifest\.json"):
        TraceManifest(tmp_path)
    assert path.read_text() == text
