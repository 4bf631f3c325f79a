"""Reports of the self-test: the kill matrix."""
