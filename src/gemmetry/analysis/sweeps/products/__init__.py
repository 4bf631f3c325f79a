"""The tables of the sweep analysis document, from traces or from TraceLens' workbooks."""
