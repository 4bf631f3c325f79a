"""What operators of a framework compute: their shapes, FLOP and bytes, and the kernels that they
launch.
"""
