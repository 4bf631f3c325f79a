"""JSON arrays of any size, read in pieces, and repaired where a file is damaged."""
