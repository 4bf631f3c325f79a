"""What CUDA mutants need from the driver in addition to what every kernel needs."""

from __future__ import annotations

from cuda.bindings import driver

from gemmetry.devices.cuda_driver import checked


def fill_zeros(address: int, words: int, stream: int) -> None:
    """Set `words` 32-bit words starting at `address` to zero, in the order of `stream`.

    Raises:
        CudaError: the driver reported an error.
    """
    checked(
        driver.cuMemsetD32Async(driver.CUdeviceptr(address), 0, words, driver.CUstream(stream)),
        "setting memory to zero",
    )


def create_stream() -> int:
    """The address of a new stream that does not wait for any other.

    Raises:
        CudaError: the driver reported an error.
    """
    flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    return int(checked(driver.cuStreamCreate(flags), "creating a stream"))
