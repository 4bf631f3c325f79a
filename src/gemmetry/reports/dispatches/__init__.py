"""Reports of an experiment: terminal, page, plots, and one dispatch in detail."""
