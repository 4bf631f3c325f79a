"""The operations that a request describes: shapes, ranges, formats, layouts, and their defaults."""
