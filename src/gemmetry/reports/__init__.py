"""L4: results -> console, files, HTML."""
