"""An append-only history of many runs."""
