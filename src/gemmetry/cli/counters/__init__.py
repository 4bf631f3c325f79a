"""The commands of ``gemmetry counters``."""
