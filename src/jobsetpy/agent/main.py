"""Entry point: the first argument selects the mode; the default is the sidecar."""

from __future__ import annotations

from collections.abc import Sequence

from jobsetpy.agent.sidecar.sidecar import main as run_sidecar


def main(argv: Sequence[str] = (), *, start: float | None = None) -> int:
    """Run the agent as its environment configures it.

    Args:
        argv: flags, without the program's name; or ``supervise -- COMMAND [ARGUMENT...]`` for
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
    if argv[:1] == ["supervise"]:
        from jobsetpy.agent.supervisor.supervisor import main as supervise_worker

        return supervise_worker(argv[1:], start=start)
    if argv[:1] == ["wait-for-group"]:
        from jobsetpy.agent.startup_group.wait import main as wait_for_group

        return wait_for_group(start=start)
    if argv[:1] == ["install"]:
        from jobsetpy.agent.install import main as install

        return install(argv[1:])
    return run_sidecar(argv, start=start)
