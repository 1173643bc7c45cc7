"""Entry point: the first argument selects the mode; the default is the sidecar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from jobsetpy.agent.protocol.log import JsonLog
from jobsetpy.agent.protocol.settings import EXIT_USAGE, ConfigurationError
from jobsetpy.agent.protocol.signals import EXIT_STOPPED, leave_on_signals
from jobsetpy.aio import LoopClock

USAGE: Final = """usage: python -m jobsetpy.agent [supervise -- COMMAND [ARGUMENT ...]]
       python -m jobsetpy.agent install FOLDER
       python -m jobsetpy.agent wait-for-group

Without a mode it is a sidecar. Variables of the container configure it: docs/reference/agent.md.
"""


def main(argv: Sequence[str] = (), *, start: float | None = None) -> int:
    """Run the agent as its environment configures it.

    Args:
        argv: the program's arguments: none, or ``supervise -- COMMAND [ARGUMENT...]`` for
            supervisor mode, ``install FOLDER`` to copy the files of that mode, or
            ``wait-for-group``.
        start: time of the process's start on ``time.monotonic()``.

    Returns:
        The exit code: the configured one for a restart in place, 2 for a configuration that cannot
        work, 1 when the barrier's port is not available. SIGTERM and SIGINT end the process before
        this returns (see ``signals``): with 0, or once the barrier has lifted with the code for a
        restart in place.

    Raises:
        Exception: a defect, before the worker could run; the process then exits with 1.
    """
    began = time.monotonic() if start is None else start
    log = JsonLog(LoopClock(), start=began)
    try:
        if argv[:1] == ["supervise"]:
            from jobsetpy.agent.supervisor.supervisor import main as supervise_worker

            return supervise_worker(argv[1:], log=log)
        if argv[:1] == ["wait-for-group"]:
            from jobsetpy.agent.startup_group.wait import wait

            leave_on_signals(EXIT_STOPPED)
            return wait(os.environ, log=log, start=began)
        if argv[:1] == ["install"]:
            from jobsetpy.agent.install import main as install

            return install(argv[1:])
        if argv[:1] in (["-h"], ["--help"]):
            sys.stdout.write(USAGE)
            return 0
        if argv:
            raise ConfigurationError(f"no mode of the agent: {argv[0]!r}; variables configure it")
        from jobsetpy.agent.sidecar.sidecar import main as run_sidecar

        return run_sidecar(log=log)
    except ConfigurationError as error:
        log("wrong configuration", level="error", error=str(error))
        return EXIT_USAGE
