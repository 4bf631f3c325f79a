"""Starters of agents, one module each; see :mod:`gemmetry.engine.agents.starting`."""
