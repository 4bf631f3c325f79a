"""Verifies that an executable computes correct results."""
