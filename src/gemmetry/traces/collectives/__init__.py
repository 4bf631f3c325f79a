"""Collectives of several ranks: matching, alignment of clocks, summaries."""
