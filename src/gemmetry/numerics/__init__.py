"""Seeded inputs, references, error bounds, number formats."""
