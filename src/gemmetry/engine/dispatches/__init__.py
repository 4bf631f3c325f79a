"""The life of a dispatch on a device: built, verified, timed, sanitized."""
