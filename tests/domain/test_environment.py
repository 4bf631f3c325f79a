from __future__ import annotations

from gemmetry.domain.environment import Environment


def test_environments_are_equal_by_content():
    first = Environment(hostname="a", packages={"numpy": "2"})
    assert first.id == Environment(hostname="a", packages={"numpy": "2"}).id
    other = Environment(hostname="b", packages={"numpy": "2"})
    assert first.id != other.id
    assert first.differences(other) == ["hostname: a vs b"]


def test_of_mappings_only_the_keys_that_differ_are_told():
    first = Environment(packages={"numpy": "2", "torch": "3"}, devices=("H100", "H200"))
    second = Environment(packages={"numpy": "2", "triton": "3"}, variables={"OMP_NUM_THREADS": "1"})
    assert first.differences(second) == [
        "devices: H100, H200 vs none",
        "packages.torch: 3 vs none",
        "packages.triton: none vs 3",
        "variables.OMP_NUM_THREADS: none vs 1",
    ]


def test_the_order_of_an_environments_packages_does_not_matter():
    first = Environment(packages={"numpy": "2", "torch": "3"})
    second = Environment(packages={"torch": "3", "numpy": "2"})
    assert first.id == second.id


def test_packages_that_only_one_has_asked_for_are_no_difference():
    import dataclasses

    one = Environment(hostname="here", packages={"numpy": "2.0"})
    more = dataclasses.replace(one, packages={"numpy": "2.0", "torch": "2.13"})
    assert one.agrees_with(more) and more.agrees_with(one)
    assert not dataclasses.replace(one, packages={"numpy": "1.26"}).agrees_with(more)
    assert not dataclasses.replace(one, hostname="there").agrees_with(more)
