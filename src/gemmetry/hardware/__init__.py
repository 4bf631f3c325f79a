"""L1: table of devices with sources, peaks, roofline arithmetic."""
