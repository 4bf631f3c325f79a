"""Slots: the devices that serve one target, and the queue from which they take groups."""
