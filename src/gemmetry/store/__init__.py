"""L2: the experiment folder: manifest, journal (SQLite), references, artifacts.

May import L0 and L1. Start at ``experiment.py``; ``schema.py`` holds the tables.
"""
