"""L2: proves an executable right."""
