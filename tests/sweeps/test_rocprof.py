"""Counters that rocprofv3 collected of a point. In ``rocprof.txt``, a line ``file`` has arguments
of ``write_csv``; a line ``trace`` adds a trace of the process."""

from __future__ import annotations

from gemmetry.sweeps.rocprof import TraceProcess, read_point_rocprof


def test_counters(case, rocprofv3, tmp_path):
    place = tmp_path / "point"
    place.mkdir()
    traces = []
    for what, plain, given in case.calls():
        if what == "trace":
            traces.append(TraceProcess(host="", **given))
        elif what == "without":
            (place / plain[0]).unlink()
        elif what == "note":
            (place / plain[0]).touch()
        else:
            folder, prefix, pid = plain
            if "gemms" in given:
                given["kernels"] = [rocprofv3.GEMM] * given.pop("gemms")
            given["values"] = {**rocprofv3.VALUES, **given.get("values", {})}
            rocprofv3.write_csv(place / folder, str(prefix), pid, **given)
    found = read_point_rocprof([place], traces)
    lines = []
    for one in found.kernels:
        record = {**one.record(), "kernel": one.kernel[:8]}
        # Zeros are shown, what is not known is not.
        lines.append(("kernel", {name: "0" if v == 0 else v for name, v in record.items()}))
    case.check([*lines, *(f"problem: {text}" for text in found.problems)], tmp_path)
