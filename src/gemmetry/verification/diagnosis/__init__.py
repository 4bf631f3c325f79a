"""Diagnoses the kind of bug behind a wrong result, from where and how the result is wrong."""
