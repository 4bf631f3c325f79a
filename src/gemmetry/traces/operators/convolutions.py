"""Finds the kernels launched by convolution operators.

cuDNN and MIOpen run some convolutions as plain GEMM kernels (filters of 1 x 1, FFT, im2col): by
name such a kernel is a GEMM, by its operator it is a convolution.
"""

from __future__ import annotations

import re

import numpy as np

from gemmetry.formats.events import Bools, TraceRows
from gemmetry.traces.gemms.joins import NONE, JoinedLaunches
from gemmetry.traces.operators.gemms import is_gemm_operator

_CONVOLUTION = re.compile(r"(?:\A|::|_)(?:\w{0,40}_)?conv(?:olution|[123]d|_|\Z)", re.IGNORECASE)
_BACKWARD = re.compile(r"\A\w{0,40}Conv(?:olution|[123]d)\w{0,20}Backward", re.IGNORECASE)
_LOOKED_AT = 256
"""Number of characters of an operator's name that are read."""


def is_convolution_operator(name: str) -> bool:
    """Whether an operator of this name is a convolution or the gradient of one:
    ``aten::cudnn_convolution``, ``aten::conv2d``, ``CudnnConvolutionBackward``."""
    name = name[:_LOOKED_AT]
    is_operator = "::" in name and _CONVOLUTION.search(name.rpartition("::")[2]) is not None
    return is_operator or _BACKWARD.match(name) is not None


def launched_by_convolution(rows: TraceRows, launches: JoinedLaunches) -> Bools:
    """For each row of ``rows.gpu``: whether, going outwards from its launch, a convolution operator
    comes before any operator that is one GEMM. False for work of graphs, whose operators are
    unknown."""
    names = rows.operators.name
    is_convolution = np.array([is_convolution_operator(name) for name in rows.names], bool)[names]
    stops = np.array([is_gemm_operator(name) for name in rows.names], bool)[names] | is_convolution
    at = np.where(launches.from_graph, NONE, launches.operator)
    waiting = np.flatnonzero(at != NONE)
    while len(waiting):
        waiting = waiting[~stops[at[waiting]]]
        at[waiting] = launches.parent[at[waiting]]
        waiting = waiting[at[waiting] != NONE]
    result = np.zeros(len(at), bool)
    known = at != NONE
    result[known] = is_convolution[at[known]]
    return result
