"""The parts of a device on torch: storage of formats, timing, stress, work outside the order."""
