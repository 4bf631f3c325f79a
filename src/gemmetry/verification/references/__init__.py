"""References that results are compared with: whole results, samples of rows and columns, and
Freivalds' vectors."""
