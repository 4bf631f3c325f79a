"""What this machine is: peak rates, topology, counters; memory and time of its devices."""
