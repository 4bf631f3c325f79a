from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from gemmetry.domain.errors import (
    JournalDamagedError,
    Outcome,
    PlanMismatchError,
    RequestError,
    StorageError,
    Verification,
)
from gemmetry.domain.record import BuildFacts, CounterFacts, Verdict
from gemmetry.engine.experiment import Experiment


def test_a_new_experiment_holds_its_plan_and_nothing_else(tmp_path, open_experiment):
    with open_experiment("new/exp") as experiment:
        assert experiment.is_new
        assert experiment.total() == 4
        remaining = list(experiment.remaining())
        assert remaining[0].name == "matmul_8x8x8_f32t_f32t_f32t_default"
        assert [row.id for row in remaining] == [1, 2, 3, 4]
        assert list(experiment.remaining([2])) == list(experiment.records()) == []
        (lane,) = experiment.lanes()
        assert (lane.provider, lane.options, lane.target.name) == ("null", {"threads": 1}, "null")
    manifest = json.loads((tmp_path / "new" / "exp" / "manifest.json").read_text())
    assert (manifest["document"], manifest["format_version"]) == ({"a": 1}, 1)
    assert manifest["commands"] == ["gemmetry profile"]


def test_records_come_back_as_they_were_or_amended(tmp_path, open_experiment, make_record):
    record = make_record(
        verdict=Verdict(status=Verification.WARNED, checks={"values": "passed"}),
        facts=BuildFacts(notes=("a", "b"), registers=12),
        configuration_parameters={"tile_m": 64, "swizzle": True, "text": "x"},
        tags={"who": "me"},
    )
    failed = make_record(Outcome.CRASH, device="null:1")
    counters = CounterFacts(folder="counters/x", metric_set="gemm", launches=1, passes=38)
    amended = dataclasses.replace(record, counters=counters)
    with open_experiment() as experiment:
        experiment.finish({3: failed, 1: record})
        assert list(experiment.records()) == [record, failed]
        assert [row.id for row in experiment.remaining()] == [2, 4]
        assert experiment.outcome_counts() == {"ok": 1, "crash": 1}
        assert not experiment.lacks_ok()
        experiment.amend(1, amended)
    moved = shutil.move(tmp_path, tmp_path.with_name("b #?%"))
    with Experiment.open(moved) as experiment:
        assert list(experiment.records()) == [amended, failed], "the folder may be moved"


def test_an_operation_without_ok_dispatch_is_found(open_experiment, make_record):
    not_tried = ("skipped", "unsupported")
    skipped = [make_record(Outcome.SKIPPED, operation=name) for name in "ab"]
    with open_experiment() as experiment:
        experiment.finish(dict(enumerate(skipped, 1)))
        experiment.finish({3: make_record(operation="a")})
        assert experiment.lacks_ok()
        assert not experiment.lacks_ok(not_tried)
        experiment.finish({4: make_record(Outcome.CRASH, operation="c")})
        assert experiment.lacks_ok(not_tried)


def test_a_provider_without_ok_dispatch_is_found(open_experiment, make_record):
    with open_experiment() as experiment:
        assert not experiment.lacks_ok(provider="user")
        experiment.finish({1: make_record(), 2: make_record(Outcome.SKIPPED, provider="user")})
        assert not experiment.lacks_ok()
        assert not experiment.lacks_ok(["skipped"], provider="user")
        assert experiment.lacks_ok(provider="user")
        assert not experiment.lacks_ok(provider="null")
        experiment.finish({3: make_record(provider="user")})
        assert not experiment.lacks_ok(provider="user")


def test_rounds_are_kept_in_order_and_never_twice(open_experiment, make_record, make_round):
    with open_experiment() as experiment:
        experiment.add_rounds([make_round(1, 0, 1.0, 2.0), make_round(2, 0, 9.0)])
        experiment.add_rounds([make_round(1, 1, 3.0)])
        with pytest.raises(StorageError):
            experiment.add_rounds([make_round(3, 0, 5.0), make_round(1, 1, 4.0)])
        assert experiment.rounds([3]) == {}, "a transaction is stored whole or not at all"
        assert experiment.samples_count() == 4
        stored = experiment.rounds([1, 2])
        assert [one.taken.samples_ns for one in stored[1]] == [(1.0, 2.0), (3.0,)]
        assert (stored[2][0].taken.method, stored[2][0].taken.seconds) == ("simulated", 0.5)
        experiment.finish({1: make_record()})
        assert experiment.samples(make_record()) == [1.0, 2.0, 3.0]
        assert experiment.samples(make_record(seed=1)) == []


def test_rounds_are_distinguished_by_their_turn(open_experiment, make_record, make_round):
    """Older rounds have none, and a turn that was begun twice is one."""
    record = make_record()
    with open_experiment() as experiment:
        for number, turn in enumerate([7, 9, 9, 0]):
            experiment.add_rounds([make_round(1, number, float(number), turn=turn)])
        experiment.add_rounds([make_round(1, 4, 4.0)])
        experiment.finish({1: record})
        assert experiment.result_set().rounds(record) == {7: [0.0], 9: [1.0, 2.0]}
        assert experiment.samples(record) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_rounds_of_another_environment_are_dropped(open_experiment, make_record, make_round):
    with open_experiment() as experiment:
        experiment.add_rounds([make_round(1, 0, 1.0), make_round(2, 0, 2.0, 3.0)])
        experiment.finish({1: make_record()})
    with open_experiment(hostname="there") as experiment:
        assert experiment.drop_foreign_rounds() == 2
        assert experiment.rounds([2]) == {}
        assert experiment.samples(make_record()) == [1.0]
        assert {env.hostname for env in experiment.environments().values()} == {"here", "there"}


def test_a_bandwidth_is_measured_once_per_environment(open_experiment):
    with open_experiment() as experiment:
        assert experiment.host_bandwidth(lambda: None) is None
        assert experiment.host_bandwidth(lambda: 41.5e9) == 41.5e9
    with open_experiment() as again:
        assert again.host_bandwidth(lambda: 39.0e9) == 41.5e9, "resuming keeps the roof"
    with open_experiment(hostname="there") as elsewhere:
        assert elsewhere.host_bandwidth(lambda: 39.0e9) == 39.0e9


def test_another_plan_is_refused_and_reported(tmp_path, open_experiment, make_plan):
    open_experiment().close()
    before = (tmp_path / "journal.sqlite").read_bytes()
    with pytest.raises(PlanMismatchError) as caught:
        open_experiment(plan=make_plan(a=2))
    assert caught.value.exit_status == 2
    hashes = [make_plan(a=number).hash for number in (1, 2)]
    for part in ("--experiment", "--fresh", "a (1, now 2)", *hashes):
        assert part in str(caught.value)
    assert (tmp_path / "journal.sqlite").read_bytes() == before


def test_fresh_sets_the_old_results_aside(tmp_path, open_experiment, make_plan, make_record):
    with open_experiment() as experiment:
        experiment.finish({1: make_record()})
    with open_experiment(plan=make_plan(a=2), fresh=True) as experiment:
        assert list(experiment.records()) == []
    with Experiment.open(tmp_path / "previous") as old:
        assert list(old.records()) == [make_record()]
    with open_experiment(plan=make_plan(a=2), fresh=True) as experiment:
        assert experiment.total() == 4


def test_fresh_never_deletes_a_damaged_journal(tmp_path, open_experiment):
    for text in (b"rubbish", b"nonsense"):
        (tmp_path / "journal.sqlite").write_bytes(text * 100)
        for _ in range(3):
            open_experiment(fresh=True).close()
    kept = [(tmp_path / f"damaged-{n}" / "journal.sqlite").read_bytes()[:7] for n in (1, 2)]
    assert kept == [b"rubbish", b"nonsens"]
    assert not (tmp_path / "damaged-3").exists()
    Experiment.open(tmp_path / "previous").close()


def test_verdicts_are_kept_until_the_record_has_them(open_experiment, make_record):
    verdict = Verdict(status=Verification.PASSED, checks={"form": "passed"})
    with open_experiment() as experiment:
        experiment.add_rounds([], {1: verdict, 2: verdict})
    with open_experiment() as experiment:
        assert experiment.verdicts([1, 2, 3]) == {1: verdict, 2: verdict}
        experiment.finish({1: make_record()})
        assert experiment.verdicts([1, 2, 3]) == {2: verdict}
    with open_experiment(hostname="other") as experiment:
        assert experiment.verdicts([1, 2]) == {}, "another environment judges anew"


def test_losses_of_the_device_are_counted(open_experiment, make_record):
    with open_experiment() as experiment:
        assert [experiment.count_device_loss(number) for number in (2, 2, 1)] == [1, 2, 1]
    with open_experiment() as experiment:
        assert experiment.device_losses() == {1: 1, 2: 2}
        experiment.finish({2: make_record()})
        assert experiment.device_losses() == {1: 1}


def test_a_journal_of_an_older_gemmetry_gets_the_new_tables(open_experiment):
    with open_experiment() as experiment:
        for table in ("verdicts", "device_losses"):
            experiment._connection.execute(f"DROP TABLE {table}")
    with open_experiment() as experiment:
        assert experiment.verdicts([1]) == experiment.device_losses() == {}


DAMAGES = {
    "empty": lambda content: b"",
    "text": lambda content: b"this is no database" * 500,
    "truncated": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: content[:4096] + bytes(4096) + content[8192:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal_is_not_touched(tmp_path, open_experiment, make_record, damage):
    with open_experiment() as experiment:
        experiment.finish({key: make_record() for key in range(1, 5)})
    journal = tmp_path / "journal.sqlite"
    journal.write_bytes(DAMAGES[damage](journal.read_bytes()))
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    for attempt in (open_experiment, Experiment.open):
        with pytest.raises(JournalDamagedError, match="--fresh"):
            attempt(tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_a_journal_of_another_format_is_reported(open_experiment):
    with open_experiment() as experiment:
        experiment._connection.execute("UPDATE meta SET value = '99' WHERE key = 'format_version'")
        experiment._connection.commit()
    with pytest.raises(JournalDamagedError, match="format is 99"):
        open_experiment()


def test_a_lost_manifest_is_written_again(tmp_path, open_experiment):
    open_experiment().close()
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(JournalDamagedError, match=r"manifest\.json is missing"):
        Experiment.open(tmp_path)
    open_experiment().close()
    Experiment.open(tmp_path).close()


def test_readers_see_a_run_in_progress(tmp_path, open_experiment, make_record):
    with open_experiment() as experiment:
        experiment.finish({1: make_record()})
        with Experiment.open(tmp_path) as reader:
            assert len(list(reader.records())) == 1
            experiment.finish({2: make_record(configuration="fast")})
            results = reader.result_set()
            assert [record.configuration for record in results.records] == ["default", "fast"]
            assert results.command == "gemmetry profile"
            assert results.title == "store"


def test_readers_manage_in_a_folder_they_cannot_write(open_experiment, make_record, forked):
    # Not in tmp_path, whose parents only root may enter. Modules are loaded before root gives
    # its rights up.
    code = (
        "import os, sys; from pathlib import Path;"
        "from gemmetry.engine.experiment import Experiment;"
        "os.geteuid() == 0 and (os.setgid(65534), os.setuid(65534));"
        "assert not os.access(sys.argv[1], os.W_OK);"
        "print(len(list(Experiment.open(Path(sys.argv[1])).records())))"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_experiment(folder) as experiment:
            experiment.finish({1: make_record()})
        assert not (folder / "journal.sqlite-wal").exists()
        folder.chmod(0o555)
        done = forked(code, name)
        folder.chmod(0o755)
    assert done.stdout.strip() == "1", done.stderr


def test_a_second_writer_is_refused(open_experiment):
    with open_experiment(), pytest.raises(RequestError, match=f"process {os.getpid()}"):
        open_experiment()
    open_experiment().close()


def test_an_enumeration_that_fails_leaves_nothing(tmp_path, open_experiment, make_plan):
    fail = Mock(side_effect=RequestError("nothing selected"))
    with pytest.raises(RequestError, match="nothing selected"):
        open_experiment("exp", enumerate_plan=fail)
    assert not (tmp_path / "exp").exists()
    open_experiment("exp").close()
    with pytest.raises(RequestError):
        open_experiment("exp", plan=make_plan(a=2), fresh=True, enumerate_plan=fail)
    with open_experiment("exp") as experiment:
        assert experiment.total() == 4, "the old journal stays until the new one is complete"


def test_a_full_disk_keeps_what_was_stored(tmp_path, open_experiment, forked):
    open_experiment().close()
    done = forked(Path(__file__).with_name("fill_disk.py").read_text(), str(tmp_path))
    assert done.stdout.startswith("StorageError"), done.stdout + done.stderr
    stored = int(done.stdout.split()[1])
    with open_experiment() as experiment:
        assert stored > 0
        assert len(experiment.rounds([1])[1]) == stored
