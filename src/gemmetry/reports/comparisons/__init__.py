"""Reports of what ``compare`` found."""
