"""Training sweeps: the workload that is trained, and how its points are planned and launched."""
