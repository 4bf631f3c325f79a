"""Files of NCCL and its plugins."""
