"""Reports of traces: tables, page, workbook and plots."""
