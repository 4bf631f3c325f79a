"""Writes rounds to the experiment in argv[1] until a file size limit stops it, as a full disk
would; prints the error's name and how many rounds were stored. Run by test_experiment.py."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import StorageError
from gemmetry.domain.record import Environment
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import StoredRound
from gemmetry.measurement.stopping import Round

plan = Plan(name="store", operations=(), providers=(), targets=(), document={"a": 1})
folder = Path(sys.argv[1])
experiment = Experiment.create_or_open(folder, plan, environment=Environment(hostname="here"))
limit = 400_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
taken = Round(samples_ns=(1.0,) * 1000, method="simulated", seconds=0.1)
stored = 0
try:
    while stored < 1000:
        experiment.add_rounds([StoredRound(1, stored, taken)])
        stored += 1
except StorageError as error:
    print("StorageError", stored, error)
