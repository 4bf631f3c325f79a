"""L1: quantiles, intervals, comparison of two samples."""
