"""Worker processes: how they are started, addressed, watched and ended."""
