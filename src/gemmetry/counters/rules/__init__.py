"""Rules by kind; see :func:`gemmetry.counters.model.rule`."""
