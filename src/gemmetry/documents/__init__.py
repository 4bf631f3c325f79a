"""What the five documents' own scripts wrote, to the column."""
