"""The commands ``gemmetry kernels``."""
