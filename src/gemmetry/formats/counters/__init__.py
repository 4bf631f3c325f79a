"""How reports of hardware counters are decoded."""
