"""Results -> console, files, HTML."""
