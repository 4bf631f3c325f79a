"""What a result is compared with: references, samples of rows and columns, Freivalds' vectors."""
