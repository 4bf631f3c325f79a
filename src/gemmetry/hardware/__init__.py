"""Facts about this machine: peak rates, topology, counters; memory and time of its devices."""

from __future__ import annotations
