"""TraceLens' sheets, computed from gemmetry's rows, and the inputs that they need."""
