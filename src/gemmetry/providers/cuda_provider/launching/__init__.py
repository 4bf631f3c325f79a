"""What all kernels of the provider share: their rows, how they are found, compiled and launched."""
