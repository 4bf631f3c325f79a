"""The workers of one provider on one device: the processes that share a dispatch's rounds."""

from __future__ import annotations

from gemmetry.engine.failures import WorkerLost, ending_of
from gemmetry.engine.worker_process import WorkerContext, WorkerProcess
from gemmetry.store.rows import Lane


class Crew:
    """Workers that are ready; the first one verifies, all of them sample.

    Raises:
        WorkerLost: one did not start, or the provider does not work there; none is left running.
        RunStopped: the run is being ended.
    """

    def __init__(self, lane: Lane, context: WorkerContext, count: int) -> None:
        hello = context.hello(lane, jobs=1, force_compile=context.settings.force_compile)
        self.workers: list[WorkerProcess] = []
        try:
            for _ in range(count):
                self.workers.append(WorkerProcess(lane, context, hello))
            for worker in self.workers:
                failure = worker.wait_ready()
                if failure is not None:
                    raise WorkerLost(ending_of(failure, worker.output_tail()))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.stop()

    def kill(self) -> None:
        """End the workers at once."""
        for worker in self.workers:
            worker.kill()
