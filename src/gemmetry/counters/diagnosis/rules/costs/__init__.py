"""Rules about work that could be saved; they explain a limit."""
