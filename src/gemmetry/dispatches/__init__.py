"""What the records of experiments show: fastest dispatches, comparisons, marks, their reports."""
