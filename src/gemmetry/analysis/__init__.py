"""L3: pure functions, table -> table."""
