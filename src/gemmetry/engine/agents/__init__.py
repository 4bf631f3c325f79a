"""Agents: processes, on this host or others, each of which serves one device to a run over TCP."""
