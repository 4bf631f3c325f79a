"""Foreign files -> neutral rows. ``events.py`` holds the rows; one reader a file format."""
