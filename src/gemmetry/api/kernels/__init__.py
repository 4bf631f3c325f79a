"""Our own kernels in Python: lists, checks of the machine code, and the ladder."""
