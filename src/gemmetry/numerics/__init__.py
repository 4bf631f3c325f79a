"""L1: seeded inputs, references, error bounds, number formats."""
