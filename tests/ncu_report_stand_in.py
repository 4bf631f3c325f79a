"""A stand-in for NVIDIA's ``ncu_report``, with as much of it as gemmetry uses."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

STRING, FLOAT = 1, 3


class Metric:
    """A value in its base unit; `samples`: address -> count."""

    def __init__(self, value, unit="", samples=None):
        self.has_value = lambda: value is not None
        self.kind = lambda: STRING if isinstance(value, str) else FLOAT
        self.as_string = lambda: value
        self.as_double = lambda: float(value)
        self.unit = lambda: unit
        self.has_correlation_ids = lambda: samples is not None
        self.num_instances = lambda: len(samples)
        self.as_uint64 = lambda index: list(samples.values())[index]
        self.correlation_ids = lambda: SimpleNamespace(as_uint64=list(samples).__getitem__)


class Action:
    """A launch with metrics by id."""

    def __init__(self, name, metrics, rules=(), sass=None):
        self.name = lambda base: f"{name}(int)" if base == "demangled" else name
        self.metric_names = lambda: tuple(metrics)
        self.metric_by_name = metrics.__getitem__
        self._rules, self._sass = rules, sass or {}
        self.disassembled = 0

    def rule_results_as_dicts(self):
        return list(self._rules)

    def sass_by_pc(self, address):
        self.disassembled += 1
        return self._sass[address]


def library(*ranges, error=None):
    """The module, whose reports all have these ranges of actions."""
    module = ModuleType("ncu_report")
    module.IMetric = SimpleNamespace(ValueKind_STRING=STRING)
    module.IAction = SimpleNamespace(NameBase_DEMANGLED="demangled")

    def load_report(path):
        if error is not None:
            raise error
        return SimpleNamespace(
            num_ranges=lambda: len(ranges),
            range_by_idx=lambda i: SimpleNamespace(
                num_actions=lambda: len(ranges[i]), action_by_idx=lambda j: ranges[i][j]
            ),
            get_version=lambda: "2025.3.1",
        )

    module.load_report = load_report
    return module
