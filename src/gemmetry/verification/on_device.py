"""Compares results with references on the device where they are, as far as it can: the same bounds,
without moving results to the host."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gemmetry.domain.contracts import Buffer, Device, DigestingDevice
from gemmetry.domain.errors import OutOfMemoryError
from gemmetry.domain.operation import TensorSpec
from gemmetry.numerics.bounds import BoundRule
from gemmetry.numerics.error_sums import ErrorSums
from gemmetry.numerics.references import Reference
from gemmetry.verification.after_timing import digest
from gemmetry.verification.error_statistics import ErrorStatistics
from gemmetry.verification.launching import Launch


@runtime_checkable
class ComparingDevice(Protocol):
    """A device that compares results with float64 references."""

    def upload_reference(self, reference: Reference) -> Any | None:
        """The reference on the device; None where it is of integers, where memory is short, or
        where the host is just as good."""

    def error_sums(
        self, result: Buffer, spec: TensorSpec, reference: Any, rule: BoundRule
    ) -> ErrorSums | None:
        """Errors of `result`; None unless it has the form of `spec` and all of its elements are
        numbers within their warn bounds. What is wrong with others the host finds out.

        Args:
            reference: what :meth:`upload_reference` returned.
        """


def digest_of(launch: Launch) -> str:
    """The digest of a launch's result, by which timed launches are recognised as right; by the
    device where it can compute one."""
    if isinstance(launch.device, DigestingDevice) and not launch.returned_type:
        found = launch.device.digest(launch.result)
        if found is not None:
            return found
    return digest(launch.output)


class ReferenceOnDevice:
    """The latest reference that results were compared with on a device."""

    def __init__(self) -> None:
        self._reference: Reference | None = None
        self._uploaded: Any | None = None

    def statistics(
        self,
        device: Device,
        result: Buffer,
        spec: TensorSpec,
        reference: Reference,
        rule: BoundRule,
    ) -> ErrorStatistics | None:
        """What :func:`gemmetry.verification.comparison.compare` finds about a `result` on `device`
        whose elements are all within their warn bounds; None for others, and where the device
        compares nothing."""
        if not isinstance(device, ComparingDevice):
            return None
        try:
            if self._reference is not reference:
                self.clear()
                self._uploaded = device.upload_reference(reference)
                self._reference = reference
            if self._uploaded is None:
                return None
            sums = device.error_sums(result, spec, self._uploaded, rule)
        except OutOfMemoryError:
            self.clear()
            return None
        if sums is None:
            return None
        return ErrorStatistics(elements=reference.value.size, **sums._asdict())

    def clear(self) -> None:
        """Release the device's memory."""
        self._reference = self._uploaded = None
