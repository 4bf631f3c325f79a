"""A user's own CUDA C++ file: the manifest next to it, compiling and launching."""
