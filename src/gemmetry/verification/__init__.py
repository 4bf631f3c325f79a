"""Verifies dispatches: checks, their inputs and references, and the reason for a failure."""
