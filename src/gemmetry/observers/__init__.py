"""L2: telemetry attached to a run."""
