"""TraceLens' sheets, computed from our rows, and the inputs that they need."""
