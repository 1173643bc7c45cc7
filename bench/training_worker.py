"""Common parts of the benchmark's trainings: the events of each run, written to files.

They are ordinary programs: ranks from the environment, a checkpoint on a shared folder. A run's
first step is a line of JSON there; rank 0's last step is in a file next to it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

SHARED = Path(os.environ.get("SHARED", "/shared"))
EVERY = 20
PAUSE_S = 0.02


class Run:
    """One process of the training.

    Args:
        start: time at which it began to import.
        imported: time at which the imports were complete.
    """

    def __init__(self, start: float, imported: float) -> None:
        self.moments = {"start": start, "imported": imported, "began": time.time()}
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.checkpoint = SHARED / "checkpoint"
        self._progress = os.environ.get("JOBSET_PROGRESS_FILE", "")
        self._first = True
        self._step = os.open(SHARED / f"step-{self.rank}", os.O_CREAT | os.O_RDWR)
        self._before = int(os.pread(self._step, 12, 0) or 0)
        signal.signal(signal.SIGUSR2, _fail)

    def joined(self) -> None:
        """Record that all ranks have joined."""
        self.moments["joined"] = time.time()

    def stepped(self, step: int) -> None:
        """Record that a step is complete."""
        if self._first:
            who = {"rank": self.rank, "world": self.world, "pid": os.getpid()}
            who["host"] = os.uname().nodename
            steps = {"step": step, "before": self._before}
            line = {**who, **steps, **self.moments, "at": time.time()}
            with (SHARED / f"runs-{self.rank}").open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._first = False
        os.pwrite(self._step, f"{step:<12}\n".encode(), 0)
        if self._progress:
            Path(self._progress).write_text(str(step))
        time.sleep(PAUSE_S)

    def due(self, step: int) -> bool:
        """Return True if this rank has to write a checkpoint now."""
        return self.rank == 0 and step % EVERY == 0


def _fail(_number: int, _frame: object) -> None:
    """Raise, as a step with bad data does."""
    raise ValueError("loss is not a number")
