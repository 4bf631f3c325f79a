"""The commands of ``gemmetry dispatcher``."""
