"""Collectives of the ranks of a job: matches them across ranks, aligns clocks, and computes
bandwidths."""
