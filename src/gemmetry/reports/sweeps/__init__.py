"""What sweeps show, as text, pages, plots, workbooks."""
