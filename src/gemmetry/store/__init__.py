"""L2: the experiment folder."""
