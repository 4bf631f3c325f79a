"""Reports of stored results: on a terminal, as files and as HTML pages."""
