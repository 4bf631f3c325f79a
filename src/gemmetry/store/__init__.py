"""The experiment folder: manifest, journal (SQLite), references, artifacts.

Start at ``experiment.py``; ``schema.py`` holds the tables.
"""
