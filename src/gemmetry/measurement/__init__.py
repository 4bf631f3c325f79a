"""Times a dispatch: cold inputs, warm-up, samples, the stopping rule and the summary.

Start at ``sampler.py`` (takes the samples), then ``stopping.py`` and ``marks.py``.
"""

from __future__ import annotations
