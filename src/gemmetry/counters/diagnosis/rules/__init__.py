"""One rule per file; see :class:`gemmetry.counters.diagnosis.model.Rule`."""
