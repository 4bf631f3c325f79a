"""What all kernels of the provider share: their rows, how they are found, compiled and launched."""

from __future__ import annotations
