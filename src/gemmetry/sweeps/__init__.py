"""Training sweeps: what is run, what its traces show, comparisons, pages."""
