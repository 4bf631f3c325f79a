"""Records the traces of a plan's dispatches into folders that can grow."""
