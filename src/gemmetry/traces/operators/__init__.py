"""Operators: their tensors, shapes, FLOP and bytes."""

from __future__ import annotations
