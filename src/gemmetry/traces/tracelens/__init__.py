"""TraceLens' sheets."""
