"""The self-test of verification: planted bugs, the kill matrix and its report."""
