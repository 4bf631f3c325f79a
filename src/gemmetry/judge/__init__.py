"""Any callable, timed against others and compared with a reference, in this process."""
