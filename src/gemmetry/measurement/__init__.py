"""L2: samples that can be believed."""
