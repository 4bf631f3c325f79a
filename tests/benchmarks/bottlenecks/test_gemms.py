from __future__ import annotations

import json

import gemms

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import operation_name
from gemmetry.providers.registry import load_provider


def test_products_have_names_that_exist() -> None:
    for product in gemms.PRODUCTS:
        provider, operation, *_ = product.split(":")
        assert load_provider(provider).name == provider
        assert operation_name(parse_operation(operation)) == operation


def test_products_are_launched_in_order_and_others_left_out(tmp_path, capsys) -> None:
    right = "torch:matmul_8x8x8_f32t_f32t_f32t"
    unknown = f"{right}:tile_1x1"
    gemms.main(["--device", "cpu", "--json", str(tmp_path / "done.json"), right, unknown])
    assert json.loads((tmp_path / "done.json").read_text()) == [right]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{right} launched"
    assert "no configuration tile_1x1" in shown[1]
    assert gemms.launch(right, "cuda:99") == "the provider does not have cuda:99"
