"""References of the checks."""
