"""The workers of a device: for each lane a crew, whose processes share a dispatch's rounds."""

from __future__ import annotations

from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.workers.process import WorkerContext, WorkerProcess
from gemmetry.store.rows import Lane


class Crew:
    """Workers that are ready; the first one verifies, and all of them sample.

    Raises:
        WorkerLost: one did not start, or the provider does not work there; none is left running.
        RunStopped: the run is being ended.
    """

    def __init__(self, lane: Lane, context: WorkerContext, count: int) -> None:
        hello = context.hello(lane, jobs=1)
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
        """Kill the workers."""
        for worker in self.workers:
            worker.kill()


class Crews:
    """The crews of one device, by lane; each is started when it is first needed."""

    def __init__(self, context: WorkerContext, count: int) -> None:
        """`count` is the number of workers in each crew."""
        self._context = context
        self._count = count
        self._running: dict[int, Crew] = {}
        self._broken: dict[int, Ending] = {}

    def of(self, lane: Lane) -> Crew:
        """The lane's crew.

        Raises:
            WorkerLost: it did not start, now or earlier.
        """
        crew = self._running.get(lane.id)
        if crew is not None:
            return crew
        if lane.id in self._broken:
            raise WorkerLost(self._broken[lane.id])
        try:
            crew = Crew(lane, self._context, self._count)
        except WorkerLost as lost:
            self._broken[lane.id] = lost.ending
            raise
        self._running[lane.id] = crew
        return crew

    def workers(self, lane: int) -> list[WorkerProcess]:
        """The workers of a lane, if its crew is running."""
        return self._running[lane].workers

    def drop(self, lane: int) -> None:
        """End a lane's workers, one of which is lost, if they are running; the next ones are
        new."""
        crew = self._running.pop(lane, None)
        if crew is not None:
            crew.kill()

    def stop(self) -> None:
        """End all workers."""
        for crew in self._running.values():
            crew.stop()
        self._running.clear()

    def kill(self) -> None:
        """Kill all workers."""
        for crew in self._running.values():
            crew.kill()
        self._running.clear()
