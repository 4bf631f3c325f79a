"""Mutants whose author had not seen the checks."""
