"""``gemmetry trace`` and its commands."""
