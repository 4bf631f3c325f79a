"""What torch raises, as errors that name the cause and the next step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from gemmetry.domain.errors import RequestError

LATER_S = 2.0
"""How long a rank with an unexplained error waits before it fails. It is most often that another
rank has ended; torchrun quotes the earliest error, by whole seconds, and ends the others."""


def too_little_memory(what: str) -> RequestError:
    """The error for a run that does not fit; `what` states how much is missing where."""
    return RequestError(
        f"too little memory: {what}",
        hint="Raise training.gradient_accumulation, which makes micro-batches smaller, or lower "
        "training.batch_size or model.num_layers.",
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn failures of torch that the configuration can avoid into request errors; others, which
    may be consequences of another rank's, come later (:data:`LATER_S`).

    Raises:
        RequestError: memory ran out, or an operator has no deterministic implementation.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_little_memory(_first_line(error)) from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            raise too_little_memory(_first_line(error)) from error
        if "does not have a deterministic implementation" in str(error):
            raise RequestError(
                str(error).partition(", but you set")[0],
                hint="Use --override training.deterministic=false; losses then differ slightly "
                "between two runs.",
            ) from error
        if dist.is_initialized() and dist.get_world_size() > 1:
            time.sleep(LATER_S)
        raise


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
