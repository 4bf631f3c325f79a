"""Operators: their tensors, shapes, FLOP and bytes."""
