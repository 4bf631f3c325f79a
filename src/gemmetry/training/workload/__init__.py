"""The training step whose GEMMs run under communication, as a program of its own.

``torchrun --nproc-per-node 2 -m gemmetry.training.workload --config FILE --output DIR`` trains a
transformer and writes into DIR ``torch_profiler/rank<R>/<name>.pt.trace.json.gz``, ``losses.json``
and ``facts_rank0.json``. Modules of this folder import torch; nothing else imports them.
"""
