"""The history of many runs on a terminal, in files and as a static site."""
