"""Communication of a sweep's points: settings in effect, stragglers, NCCL's own records, tuning."""
