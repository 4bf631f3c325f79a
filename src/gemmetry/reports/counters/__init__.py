"""What hardware counters show, on a terminal."""
