"""L1: YAML and command line -> domain."""
