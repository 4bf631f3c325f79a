"""What is computed of the ranks of a point together, and of the points of a sweep."""
