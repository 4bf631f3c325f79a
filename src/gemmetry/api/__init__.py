"""L5: the public Python surface. Start at ``results.py``."""
