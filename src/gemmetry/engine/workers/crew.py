"""The workers of a device: for each lane a crew, whose processes share a dispatch's rounds."""

from __future__ import annotations

from collections.abc import Iterable

from gemmetry.domain.outcome import Stage
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.workers.process import WorkerContext, WorkerProcess
from gemmetry.engine.workers.protocol import Open
from gemmetry.store.rows import Lane


class Crew:
    """Workers of a lane; the first one verifies, and all of them sample.

    Raises:
        WorkerLost: one could not be started; none is left running.
    """

    def __init__(self, lane: Lane, context: WorkerContext, count: int) -> None:
        hello = context.hello(lane, jobs=1)
        self.workers: list[WorkerProcess] = []
        self._is_ready = False
        try:
            for _ in range(count):
                self.workers.append(WorkerProcess(lane, context, hello))
                # Nothing is opened, but everything is loaded, in all processes of all lanes at once
                # and while the compilers work.
                self.workers[-1].send(Open(()))
        except BaseException:
            self.kill()
            raise

    def wait_ready(self) -> None:
        """Wait until all workers have loaded what dispatches need: the provider, the libraries of
        verification and measurement, and the device.

        Raises:
            WorkerLost: one ended, or the provider does not work there; none is left running.
            RunStopped: the run is being ended.
        """
        if self._is_ready:
            return
        try:
            for worker in self.workers:
                failure = worker.wait_ready()
                if failure is not None:
                    raise WorkerLost(ending_of(failure, worker.output_tail()))
                worker.set_deadline(Stage.BUILD, "starting")
                worker.expect((), ())
        except BaseException:
            self.kill()
            raise
        self._is_ready = True

    def kill(self) -> None:
        """Kill the workers."""
        for worker in self.workers:
            worker.kill()


class Crews:
    """The crews of one device, by lane."""

    def __init__(self, context: WorkerContext, count: int) -> None:
        """`count` is the number of workers in each crew."""
        self._context = context
        self._count = count
        self._running: dict[int, Crew] = {}
        self._broken: dict[int, Ending] = {}

    def start(self, lanes: Iterable[Lane]) -> None:
        """Start the crews of `lanes` that are not running, without waiting for them."""
        for lane in lanes:
            if lane.id not in self._running and lane.id not in self._broken:
                try:
                    self._running[lane.id] = Crew(lane, self._context, self._count)
                except WorkerLost as lost:
                    self._broken[lane.id] = lost.ending

    def wait_ready(self) -> None:
        """Wait for all crews that were started; :meth:`of` reports those that did not start.

        Raises:
            RunStopped: the run is being ended.
        """
        for lane, crew in list(self._running.items()):
            try:
                crew.wait_ready()
            except WorkerLost as lost:
                del self._running[lane]
                self._broken[lane] = lost.ending

    def of(self, lane: Lane) -> Crew:
        """The lane's crew, started if it is not running.

        Raises:
            WorkerLost: it did not start, now or earlier.
            RunStopped: the run is being ended.
        """
        self.start([lane])
        self.wait_ready()
        if lane.id in self._broken:
            raise WorkerLost(self._broken[lane.id])
        return self._running[lane.id]

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
        """End all workers, at the same time: closing a GPU takes a process half a second."""
        workers = [worker for crew in self._running.values() for worker in crew.workers]
        for worker in workers:
            worker.request_end()
        for worker in workers:
            worker.stop()
        self._running.clear()

    def kill(self) -> None:
        """Kill all workers."""
        for crew in self._running.values():
            crew.kill()
        self._running.clear()
