from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from gemmetry.formats.chakra import ChakraRows, read_chakra
from gemmetry.formats.kineto import read_kineto

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


def rows_of(text: bytes, **options: int) -> ChakraRows:
    rows = read_chakra(io.BytesIO(text), **options)
    assert rows is not None
    return rows


def sample(name: str) -> bytes:
    return gzip.decompress((SAMPLES / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("chakra_linear_et_1.0.1_part.json.gz", "1.0.1"),
        ("chakra_et_1.0.2.json.gz", "1.0.2-chakra.0.0.4"),
        ("chakra_resnet_1gpu_et_1.0.3_part.json.gz", "1.0.3-chakra.0.0.4"),
        ("chakra_resnet_2gpu_et_1.1.0_part.json.gz", "1.1.0-chakra.0.0.4"),
        ("chakra_pt2_et_1.1.1.json.gz", "1.1.1-chakra.0.0.4"),
        ("h200_matmul_et_1.1.1.json.gz", "1.1.1-chakra.0.0.4"),
    ],
)
def test_every_schema(name, schema):
    text = sample(name)
    told = json.loads(text)
    rows = rows_of(text)
    assert rows.schema == schema
    assert rows.pid == told["pid"]
    assert (rows.start_ms, rows.finish_ms) == (told["start_ts"], told["finish_ts"])
    assert [(node.id, node.name) for node in rows.nodes] == [
        (node["id"], node["name"]) for node in told["nodes"]
    ]
    assert (rows.problems, rows.partial) == ((), False)
    assert rows_of(text, chunk_bytes=512) == rows
    for node, original in zip(rows.nodes, told["nodes"], strict=True):
        assert node.parent == original.get("ctrl_deps", original.get("parent"))
        shapes = original.get("input_shapes", None)
        if shapes is None:
            shapes = original["inputs"]["shapes"]
        assert json.loads(node.inputs.shapes) == shapes
        assert node.record_function_id >= 0
        assert isinstance(node.attributes["op_schema"], str)


def test_a_matmul_tells_its_shapes_types_and_strides():
    rows = rows_of(sample("h200_matmul_et_1.1.1.json.gz"))
    node = next(node for node in rows.nodes if node.name == "aten::mm")
    assert json.loads(node.inputs.shapes) == [[2048, 2048], [2048, 2048]]
    assert json.loads(node.inputs.dtypes) == ["Tensor(c10::BFloat16)"] * 2
    assert json.loads(node.inputs.strides) == [[2048, 1], [2048, 1]]
    assert json.loads(node.outputs.shapes) == [[2048, 2048]]
    parent = next(one for one in rows.nodes if one.id == node.parent)
    assert parent.name == "aten::matmul"


def test_a_collective_tells_its_group():
    rows = rows_of(sample("chakra_resnet_2gpu_et_1.1.0_part.json.gz"))
    node = next(node for node in rows.nodes if "collective_name" in node.attributes)
    assert node.name == "record_param_comms"
    assert node.attributes["pg_size"] == 2


def test_nodes_share_their_number_with_the_kineto_trace_of_the_same_run():
    text = sample("h200_matmul.pt.trace.json.gz")
    numbers = {
        event["args"]["Record function id"]: event["name"]
        for event in json.loads(text)["traceEvents"]
        if event.get("cat") == "cpu_op"
    }
    nodes = {
        n.record_function_id: n.name for n in rows_of(sample("h200_matmul_et_1.1.1.json.gz")).nodes
    }
    assert len(numbers) == 4
    assert numbers.items() <= nodes.items()
    assert read_kineto(io.BytesIO(sample("h200_matmul_et_1.1.1.json.gz"))) is None


def test_damage():
    text = sample("chakra_pt2_et_1.1.1.json.gz")
    whole = rows_of(text)
    cut = rows_of(text[: len(text) // 2])
    assert cut.partial
    assert cut.nodes == whole.nodes[: len(cut.nodes)]
    assert 0 < len(cut.nodes) < len(whole.nodes)
    bad = rows_of(text.replace(b'"id": 5', b'"id": "x"', 1))
    assert len(bad.nodes) == len(whole.nodes) - 1
    assert "no node" in bad.problems[0].what
    odd = b'{"schema": "1.1.1", "nodes": [{"id": 1, "attrs": [{"name": "a", "value": [1]}]}]}'
    [node] = rows_of(odd).nodes
    assert node.attributes == {"a": "[1]"}
    assert (node.parent, node.inputs.shapes, node.record_function_id) == (-1, "", -1)
    for other in (b"", b"{}", b'{"nodes": []}', b'{"schema": "1"}', b"[]"):
        assert read_chakra(io.BytesIO(other)) is None
