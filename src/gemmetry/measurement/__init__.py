"""How a dispatch is timed: cold inputs, warm-up, samples, when to stop, what it amounts to.

Start at ``sampler.py`` (takes the samples), then ``stopping.py`` and ``summary.py``.
"""
