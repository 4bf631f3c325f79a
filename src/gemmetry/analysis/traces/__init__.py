"""What traces show, as tables and as the contents of a report."""
