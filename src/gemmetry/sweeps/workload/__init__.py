"""The training workload: ``torchrun --nproc-per-node 2 -m gemmetry.sweeps.workload --config FILE
--output DIR`` trains a small transformer.
"""

from __future__ import annotations
