"""Tables of traces, and the contents of a report."""
