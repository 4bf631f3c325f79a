"""Search for fast configurations of a provider: strategies, what they search, and simulations.

A strategy only decides what is measured next; the engine verifies and measures it.
"""
