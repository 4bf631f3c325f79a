"""Writes results: tables in every format, pages, progress, texts."""
