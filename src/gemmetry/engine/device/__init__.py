"""One device: its open dispatches, the rounds that they take turns in, and what becomes of them."""
