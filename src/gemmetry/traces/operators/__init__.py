"""The work of a framework's operators: their shapes, FLOP and bytes, and the kernels that they
launch.
"""
