"""A stand-in for NVIDIA's ``ncu_report``, with as much of it as gemmetry uses."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

STRING, FLOAT = 1, 3


class Metric:
    """A value in its base unit; `samples`: address -> count."""

    def __init__(self, value, unit="", samples=None):
        self._value, self._unit, self._samples = value, unit, samples

    def has_value(self):
        return self._value is not None

    def kind(self):
        return STRING if isinstance(self._value, str) else FLOAT

    def as_string(self):
        return self._value

    def as_double(self):
        return float(self._value)

    def unit(self):
        return self._unit

    def has_correlation_ids(self):
        return self._samples is not None

    def num_instances(self):
        return len(self._samples)

    def as_uint64(self, index):
        return list(self._samples.values())[index]

    def correlation_ids(self):
        addresses = list(self._samples)
        return SimpleNamespace(as_uint64=lambda index: addresses[index])


class Action:
    """A launch with metrics by id."""

    def __init__(self, name, metrics, rules=(), sass=None):
        self._name, self._metrics, self._rules = name, metrics, rules
        self._sass = sass or {}
        self.disassembled = 0

    def name(self, base):
        return f"{self._name}(int)" if base == "demangled" else self._name

    def metric_names(self):
        return tuple(self._metrics)

    def metric_by_name(self, name):
        return self._metrics[name]

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
