"""Rules by kind; see :func:`gemmetry.counters.diagnosis.model.rule`."""
