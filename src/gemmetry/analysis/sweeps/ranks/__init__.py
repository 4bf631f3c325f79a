"""What is computed of each trace alone, in worker processes."""
