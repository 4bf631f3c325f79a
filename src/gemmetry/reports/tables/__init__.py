"""Writers of tables, one file per format."""
