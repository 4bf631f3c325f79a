"""Rules about what bounds a kernel; the first that finds something gives the verdict."""
