"""L6: one file a command."""
