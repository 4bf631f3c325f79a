"""Reports of the ladder of our own kernels."""
