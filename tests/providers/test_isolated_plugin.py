from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.registry import IsolatedPlugin

CPU = Target(TargetKind.CPU)
OPERATION = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


class Plugin:
    """Works, unless a method is configured to raise."""

    description = "a plug-in"

    def __init__(self, **errors: BaseException) -> None:
        self.errors = errors
        self.requests: list[str] = []

    def _answer(self, name, value):
        self.requests.append(name)
        if name in self.errors:
            raise self.errors[name]
        return value

    def available(self):
        return self._answer("available", None)

    def targets(self):
        return self._answer("targets", (CPU,))

    def supports(self, operation, target):
        return self._answer("supports", None)

    def versions(self):
        return self._answer("versions", {"plugin": "1"})

    def doctor_notes(self):
        return self._answer("doctor_notes", ("a note",))

    def build(self, dispatch, workspace):
        return self._answer("build", "executable")


def test_a_plugin_that_works_answers_itself():
    plugin = Plugin()
    isolated = IsolatedPlugin("mine", plugin)
    assert isolated.name == "mine"
    assert isolated.description == "a plug-in"
    assert isolated.available() is None
    assert isolated.targets() == (CPU,)
    assert isolated.supports(OPERATION, CPU) is None
    assert isolated.versions() == {"plugin": "1"}
    assert isolated.doctor_notes() == ("a note",)
    assert isolated.build(None, None) == "executable"
    assert plugin.requests.count("targets") == 1
    with pytest.raises(AttributeError):
        _ = isolated.no_such_thing


@pytest.mark.parametrize("error", [KeyError("surprise"), SystemExit("surprise")])
@pytest.mark.parametrize("method", ["available", "targets"])
def test_what_it_raises_makes_it_unavailable(method, error):
    isolated = IsolatedPlugin("mine", Plugin(**{method: error}))
    reason = isolated.available()
    assert reason is not None
    assert reason.startswith(f"its {method}() raised {type(error).__name__}: ")
    assert "surprise" in reason
    assert isolated.targets() == (() if method == "targets" else (CPU,))


def test_what_it_raises_elsewhere_is_a_reason_too():
    errors = {name: ValueError("no") for name in ("supports", "versions", "doctor_notes")}
    isolated = IsolatedPlugin("mine", Plugin(**errors))
    assert isolated.available() is None
    assert isolated.supports(OPERATION, CPU) == "its supports() raised ValueError: no"
    assert isolated.versions() == {}
    assert isolated.doctor_notes() == ("its doctor_notes() raised ValueError: no",)


def test_its_own_objection_is_reported_unchanged():
    isolated = IsolatedPlugin("mine", Plugin(available=RequestError("give it a device")))
    assert isolated.available() == "give it a device"


def test_workers_see_what_it_raises():
    with pytest.raises(ZeroDivisionError):
        IsolatedPlugin("mine", Plugin(build=ZeroDivisionError())).build(None, None)


def test_interrupts_are_not_held_back():
    with pytest.raises(KeyboardInterrupt):
        IsolatedPlugin("mine", Plugin(available=KeyboardInterrupt())).available()
