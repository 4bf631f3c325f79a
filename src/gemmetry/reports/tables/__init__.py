"""Writers of tables, one file a format."""
