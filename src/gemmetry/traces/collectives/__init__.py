"""Collectives of the ranks of a job: matched across ranks, clocks aligned, bandwidth computed."""
