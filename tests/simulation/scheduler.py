"""One thread at a time, chosen by a seeded generator: same seed, same interleaving."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class Killed(BaseException):
    """A simulated process stops here, without unwinding anything that matters."""


class Process:
    def __init__(self, name: str, body: Callable[[Process], None], scheduler: Scheduler) -> None:
        self.name, self._body, self._scheduler = name, body, scheduler
        self._go = threading.Semaphore(0)
        self.dead = False
        self.done = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        self._go.release()
        if not self._scheduler.back.acquire(timeout=60):
            raise RuntimeError(
                f"{self.name} does not come back: it waits for something outside the simulation"
            )

    def pause(self) -> None:
        """Called by the process: let somebody else go on."""
        self.check()
        self._scheduler.back.release()
        self._go.acquire()
        self.check()

    def is_running(self) -> bool:
        """Whether the process itself asks, not the garbage collector in another's thread."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        if self.dead:
            raise Killed

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.dead:
                self._body(self)
        except Killed:
            pass  # as the scheduler wanted: nobody waits for what it did
        except BaseException as error:  # noqa: BLE001 - handed to the scheduler
            self.error = error
        finally:
            self.done = True
            self._scheduler.back.release()


class Scheduler:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.back = threading.Semaphore(0)
        self.processes: list[Process] = []
        self.steps = 0

    def spawn(self, name: str, body: Callable[[Process], None]) -> Process:
        process = Process(name, body, self)
        self.processes.append(process)
        process.start()
        return process

    def kill(self, process: Process) -> None:
        """The process never runs again; its thread unwinds without touching anything."""
        process.dead = True
        while not process.done:
            process.resume()
        self.processes.remove(process)

    def step(self) -> bool:
        """Let one process go on to its next pause; False when none is left."""
        waiting = [process for process in self.processes if not process.done]
        if not waiting:
            return False
        self.steps += 1
        chosen = self.rng.choice(waiting)
        chosen.resume()
        if chosen.done:
            self.processes.remove(chosen)
            if chosen.error is not None:
                raise chosen.error
        return True
