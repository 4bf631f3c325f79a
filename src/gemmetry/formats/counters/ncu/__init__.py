"""Reports of Nsight Compute: `.ncu-rep` files, and the raw and the details page as CSV."""
