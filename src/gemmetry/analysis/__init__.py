"""Pure functions, table -> table."""
