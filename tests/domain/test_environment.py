from __future__ import annotations

from gemmetry.domain.environment import Environment


def test_environments_are_equal_by_content():
    first = Environment(hostname="a", packages={"numpy": "2"})
    assert first.id == Environment(hostname="a", packages={"numpy": "2"}).id
    other = Environment(hostname="b", packages={"numpy": "2"})
    assert first.id != other.id
    assert first.differences(other) == ["hostname: 'a' vs 'b'"]


def test_the_order_of_an_environments_packages_does_not_matter():
    first = Environment(packages={"numpy": "2", "torch": "3"})
    second = Environment(packages={"torch": "3", "numpy": "2"})
    assert first.id == second.id
