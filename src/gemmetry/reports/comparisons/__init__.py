"""Reports of comparisons of experiments."""
