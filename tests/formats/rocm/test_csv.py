from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats.events import MISSING, GpuKind, ProblemKind
from gemmetry.formats.rocm import tables
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_csv
from gemmetry.formats.rocm.tables import kernel_tables

SAMPLES = Path(__file__).parents[2] / "data" / "traces"

KERNELS = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size",'
    '"VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",'
    '"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
)


def kernel(start: object, end: object, name: str = "gemm", agent: str = "Agent 4") -> str:
    return (
        f'"KERNEL_DISPATCH","{agent}",1,3,20,1,10,"{name}",5,{start},{end},0,0,8,0,16,64,1,1,1024,'
        "1024,1\n"
    )


AGENTS = (
    '"Node_Id","Agent_Type","Name","Product_Name"\n0,"CPU","EPYC","EPYC"\n3,"GPU","gfx942","MI300X"'
    '\n4,"GPU","gfx942","MI300X"\n'
)


@pytest.mark.parametrize(
    ("name", "rows", "agent", "stream"),
    [("sdk2024", 7, 1, 1), ("sdk2025", 4, 2, 1), ("sdk2026", 9, 4, 1)],
)
def test_real_files_of_three_generations(name, rows, agent, stream):
    found = read_rocprofv3_csv(SAMPLES / f"{name}_kernel_trace.csv")
    assert found is not None
    assert (found.format, found.events, len(found.gpu.start_ns)) == ("rocprofv3-csv", rows, rows)
    # 1024 x 1024 work-items of 64 in a workgroup.
    assert found.gpu.grid[0].tolist() == [16, 1024, 1]
    assert found.gpu.block[0].tolist() == [64, 1, 1]
    assert found.gpu.device[0] == agent
    assert found.gpu.stream[0] == stream
    assert found.names[found.gpu.name[0]].startswith("void addition_kernel<float>(float*")
    assert (found.gpu.duration_ns > 0).all()
    assert (found.problems, found.partial) == ((), False)


def test_counters_stand_for_kernels_where_nothing_else_does():
    found = read_rocprofv3_csv(SAMPLES / "hk_b64_bank_test_counter_collection.csv")
    assert found is not None
    # Two counters of three dispatches.
    assert (found.events, len(found.gpu.start_ns)) == (6, 3)
    assert found.names[found.gpu.name[0]] == "__amd_rocclr_copyBuffer"
    assert found.gpu.grid[0].tolist() == [1, 1, 1]
    assert found.gpu.device.tolist() == [0, 0, 0]
    assert found.devices[0] == "AMD Radeon Graphics"
    assert found.gpu.duration_ns[0] == 435265177255191 - 435265177252711


def test_all_files_of_a_process_and_no_other(tmp_path):
    header = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp",'
    header += '"End_Timestamp"\n'
    (tmp_path / "77_kernel_trace.csv").write_text(KERNELS + kernel(10, 30) + kernel(40, 45))
    (tmp_path / "77_agent_info.csv").write_text(AGENTS)
    (tmp_path / "77_hip_api_trace.csv").write_text(
        header + '"HIP_RUNTIME_API","hipLaunchKernel",77,20,5,1,2\n'
    )
    (tmp_path / "77_rccl_api_trace.csv").write_text(header + '"RCCL_API","ncclSend",77,20,6,1,9\n')
    (tmp_path / "77_marker_api_trace.csv").write_text(header + '"MARKER","step 3",77,20,7,0,99\n')
    (tmp_path / "77_memory_copy_trace.csv").write_text(
        '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp"\n'
        '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST","Agent 3","Agent 0",8,50,60\n'
    )
    (tmp_path / "77_kernel_stats.csv").write_text('"Name","Calls"\n"x",1\n')
    (tmp_path / "78_kernel_trace.csv").write_text(KERNELS + kernel(1, 2))
    found = read_rocprofv3_csv(tmp_path / "77_kernel_trace.csv")
    assert found is not None
    assert found.gpu.start_ns.tolist() == [10, 40, 50]
    assert found.gpu.kind.tolist() == [GpuKind.KERNEL, GpuKind.KERNEL, GpuKind.MEMCPY]
    # Agents 3 and 4 are GPUs 0 and 1.
    assert found.gpu.device.tolist() == [1, 1, 0]
    assert found.devices == {0: "MI300X", 1: "MI300X"}
    assert found.calls.correlation.tolist() == [5]
    assert [found.names[i] for i in found.operators.name] == ["ncclSend"]
    assert [found.names[i] for i in found.annotations.name] == ["step 3"]
    assert found.threads == ("77/20",)
    assert found.events == 6


@pytest.mark.parametrize(("agent", "device"), [("4", 4), ("Agent 4", 4), ("GPU 3", 3), ("?", -1)])
def test_agents_are_written_in_many_ways(tmp_path, agent, device):
    path = tmp_path / "kernel_trace.csv"
    path.write_text(KERNELS + kernel(1, 2, agent=agent))
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert found.gpu.device.tolist() == [device]


def test_a_renamed_and_packed_file(tmp_path):
    path = tmp_path / "my kernels.csv.gz"
    path.write_bytes(gzip.compress((KERNELS + kernel(1, 2)).encode()))
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert len(found.gpu.start_ns) == 1


def test_names_with_commas_quotes_lines_and_a_megabyte(tmp_path):
    path = tmp_path / "kernel_trace.csv"
    names = ['a, ""b""', "two\nlines", "k" * 1_000_000, "=1+1"]
    path.write_text(KERNELS + "".join(kernel(1, 2, name) for name in names))
    found = read_rocprofv3_csv(path)
    assert found is not None
    texts = [found.names[i] for i in found.gpu.name]
    assert texts[0] == 'a, "b"'
    assert texts[1] == "two\nlines"
    assert len(texts[2]) < 20_000
    assert texts[3] == "=1+1"


def test_rows_that_cannot_be_used_are_reported(tmp_path):
    path = tmp_path / "kernel_trace.csv"
    path.write_text(
        KERNELS + kernel(1, 2) + "1,2,3\n" + kernel(5, 2) + kernel("x", 2) + kernel(2**70, 2**71)
        + "\n" + kernel(7, 9) + '"KERNEL_DISP'
    )  # fmt: skip
    found = read_rocprofv3_csv(path)
    assert found is not None
    # Work without a usable time is left out later, as that of every format is.
    assert found.gpu.start_ns.tolist() == [1, 0, 0, 0, 7]
    assert found.gpu.duration_ns.tolist()[1:4] == [0, 0, 0]
    lost, *problems = found.problems
    assert (lost.kind, lost.count) == (ProblemKind.LOST_EVENTS, 2)
    assert str(problems[0]) == "kernel_trace.csv line 3: has 3 fields instead of 22: left out"
    assert "has 1 field " in str(problems[1])
    assert found.partial


def test_a_second_table_in_the_file_is_named_and_not_read(tmp_path):
    path = tmp_path / "kernel_trace.csv"
    path.write_text(KERNELS + kernel(1, 2) + KERNELS + kernel(5, 7))
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert found.gpu.start_ns.tolist() == [1]
    [problem] = found.problems
    assert (problem.kind, problem.where) == (
        ProblemKind.SECOND_DOCUMENT, "kernel_trace.csv line 3",
    )  # fmt: skip
    assert found.partial


def test_a_packed_file_that_is_cut_short_is_partial(tmp_path):
    path = tmp_path / "1_kernel_trace.csv.gz"
    text = KERNELS + "".join(kernel(i, i + i * 7919 % 1000) for i in range(5000))
    packed = gzip.compress(text.encode())
    path.write_bytes(packed[: len(packed) // 2])
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert 500 < len(found.gpu.start_ns) < 4500
    assert found.partial


def test_many_rows_come_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_A_BLOCK", 10)
    path = tmp_path / "kernel_trace.csv"
    path.write_text(KERNELS + "".join(kernel(i, i + 1) for i in range(35)))
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert found.gpu.start_ns.tolist() == list(range(35))


def test_files_without_kernels_or_times(tmp_path):
    assert read_rocprofv3_csv(SAMPLES / "hk_b64_bank_test_agent_info.csv") is not None
    lonely = tmp_path / "sdk2024_counter_collection.csv"
    lonely.write_bytes((SAMPLES / "sdk2024_counter_collection.csv").read_bytes())
    assert kernel_tables(lonely) == {}
    assert read_rocprofv3_csv(lonely) is None
    other = tmp_path / "x.csv"
    other.write_text("a,b\n1,2\n")
    assert read_rocprofv3_csv(other) is None
    other.write_text("")
    assert read_rocprofv3_csv(other) is None
    with pytest.raises(RequestError, match="cannot be read"):
        read_rocprofv3_csv(tmp_path / "none.csv")


def test_streams_fall_back_to_queues():
    found = read_rocprofv3_csv(SAMPLES / "sdk2024_kernel_trace.csv")
    assert found is not None
    assert found.gpu.stream[:2].tolist() == [1, 2]
    assert found.gpu.bytes[0] == MISSING
