"""The commands of ``gemmetry sweep``."""
