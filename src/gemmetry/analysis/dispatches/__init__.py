"""What the records of experiments show: fastest dispatches, comparisons, marks, the kill matrix."""
