"""One device: its open dispatches, the rounds in which they take turns, and their results."""
