"""The commands of ``gemmetry history``."""
