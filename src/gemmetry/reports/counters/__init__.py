"""What hardware counters show: on a terminal, on pages and in pictures."""
