"""Inputs of the checks."""
