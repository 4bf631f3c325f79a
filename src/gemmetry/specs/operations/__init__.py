"""Operations that a request describes: shapes, ranges, formats, layouts, and their defaults."""
