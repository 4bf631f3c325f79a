"""Searches for fast configurations: planning, running, and writing what they found."""
