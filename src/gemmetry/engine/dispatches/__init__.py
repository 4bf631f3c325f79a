"""The life of a dispatch on a device: building, verification, timing, sanitizers."""
