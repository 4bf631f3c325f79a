"""Recording the traces of a plan's dispatches, and folders of them that grow."""
