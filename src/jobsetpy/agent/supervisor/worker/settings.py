"""Settings of the supervisor: environment variables only.

Flags would have to be distinguished from the worker's command line, and pod templates set the
environment. The variables stay in the worker's environment like all others, unless they have the
prefix ``JOBSET_AGENT_``: those are for the supervisor alone, override the same name without the
prefix, and are injected by admission.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.saved_epoch import SHARED_MEMORY
from jobsetpy.agent.protocol.settings import ConfigurationError, is_decimal, is_number, number_of
from jobsetpy.agent.supervisor.worker.rules import Rules
from jobsetpy.api import agent_keys

DEFAULT_GRACE_S: Final = 10.0
MAX_GRACE_S: Final = 86400.0
MAX_PROCESSES: Final = 64
MAX_RANKS: Final = 10_000_000

EPOCH_VARIABLE: Final = "JOBSET_EPOCH"
"""Variable with the epoch of a worker's process, for ids and ports of its rendezvous."""

FIRST_MASTER_PORT: Final = 29500
PORT_STEP: Final = 10
PORTS: Final = 100


def own_environ(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment as the supervisor reads it.

    If it has variables of its own, only these, under their plain names, and the kubelet's variables
    for the API server: all others are then the worker's.
    """
    prefix = agent_keys.AGENT_VARIABLE_PREFIX
    own = {name.removeprefix(prefix): environ[name] for name in environ if name.startswith(prefix)}
    if not own:
        return environ
    return {name: environ[name] for name in environ if name.startswith("KUBERNETES_")} | own


def workers_environ(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the worker's environment: without the supervisor's own variables."""
    prefix = agent_keys.AGENT_VARIABLE_PREFIX.encode()
    return {name: value for name, value in environ.items() if not name.startswith(prefix)}


def load_rules(environ: Mapping[str, str]) -> Rules:
    """Read the settings for the worker: grace, exit codes, signals, number of processes.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    return Rules(
        grace_s=seconds_of(environ, "WORKER_GRACE_SECONDS", DEFAULT_GRACE_S),
        end_codes=_codes(environ.get("END_POD_EXIT_CODES", "")),
        stop_signal=_signal(environ, "WORKER_STOP_SIGNAL", signal.SIGTERM),
        dump_signal=_signal(environ, "HANG_SIGNAL", signal.SIGABRT),
        processes=number_of(environ, "WORKER_PROCESSES", 1, 1, MAX_PROCESSES),
    )


def chosen_log(environ: Mapping[str, str], log: Log) -> Log:
    """Return the log without unwanted lines: standard error is the worker's as well.

    With ``AGENT_LOG=on`` there is a line for each transition; with ``problems`` there are warnings
    and errors; with ``off`` there is nothing.

    Raises:
        ConfigurationError: ``AGENT_LOG`` is none of these.
    """
    text = environ.get("AGENT_LOG", "") or "on"
    if text not in {"on", "problems", "off"}:
        raise ConfigurationError(f'AGENT_LOG must be "on", "problems" or "off": {text!r}')
    if text == "on":
        return log

    def quieter(event: str, /, *, level: str = "info", **fields: object) -> None:
        if text == "problems" and level != "info":
            log(event, level=level, **fields)

    return quieter


def split_command(argv: Sequence[str]) -> list[str]:
    """Return the worker's command from the arguments after ``supervise``: all after ``--``.

    Raises:
        ConfigurationError: there is no command, or an argument before the dashes.
    """
    if not argv or argv[0] != "--":
        extra = f", not {argv[0]!r}" if argv else ""
        raise ConfigurationError(f"supervise must be followed by -- COMMAND [ARGUMENT...]{extra}")
    command = list(argv[1:])
    if not command or not command[0]:
        raise ConfigurationError(
            "no command to run: the agent cannot know the entry point of the worker's image, so "
            "the container's command must be given"
        )
    return command


def worker_environs(
    common: dict[bytes, bytes], environ: Mapping[str, str]
) -> list[Mapping[bytes, bytes]]:
    """Return the environment of each of the worker's processes, with the variables of torch.

    Ranks are numbered through all processes of all pods, consecutively within a pod, starting with
    the pod that has ``MASTER_ADDR``. Without ``WORKER_PROCESSES`` nothing is added.
    ``MASTER_PORT`` is missing where it depends on the epoch, see :func:`sets_master_port`.

    Args:
        common: variables that they share.
        environ: the supervisor's own variables: ``WORKER_PROCESSES`` is the number of processes in
            this pod, ``WORKER_WORLD_SIZE`` in all pods, ``WORKER_FIRST_RANK`` the rank of the first
            one in the first pod of the first Job of this ReplicatedJob, ``WORKER_JOB_PODS`` the
            number of pods of each of these Jobs, ``WORKER_JOB_INDEX`` and ``WORKER_POD_INDEX`` the
            indexes of this Job and pod.

    Raises:
        ConfigurationError: a value is missing, or the values are inconsistent.
    """
    if not environ.get("WORKER_PROCESSES"):
        return [common]
    processes = number_of(environ, "WORKER_PROCESSES", 1, 1, MAX_PROCESSES)
    world = number_of(environ, "WORKER_WORLD_SIZE", 1, 1, MAX_RANKS)
    first = number_of(environ, "WORKER_FIRST_RANK", 0, 0, MAX_RANKS)
    pods = number_of(environ, "WORKER_JOB_PODS", 1, 1, MAX_RANKS)
    job = number_of(environ, "WORKER_JOB_INDEX", 0, 0, MAX_RANKS)
    pod = number_of(environ, "WORKER_POD_INDEX", 0, 0, MAX_RANKS)
    rank = first + (job * pods + pod) * processes
    if pod >= pods or rank + processes > world:
        raise ConfigurationError(
            f"pod {pod} of Job {job} has no ranks: {processes} processes from rank {rank} do not "
            f"fit into WORKER_WORLD_SIZE {world} with WORKER_JOB_PODS {pods}"
        )
    rank = (rank - number_of(environ, "WORKER_MASTER_RANK", 0, 0, MAX_RANKS)) % world
    shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(processes)} | {
        name: environ.get(name, "")
        for name in ("MASTER_ADDR", "MASTER_PORT")
        if name.encode() not in common
    }
    return [
        common | encoded(shared | {"RANK": str(rank + local), "LOCAL_RANK": str(local)})
        for local in range(processes)
    ]


def sets_master_port(common: Mapping[bytes, bytes], environ: Mapping[str, str]) -> bool:
    """Return True if the agent chooses ``MASTER_PORT``: it numbers the ranks and none is given.

    Args:
        common: variables that the worker's processes share.
        environ: the supervisor's own variables.
    """
    given = b"MASTER_PORT" in common or environ.get("MASTER_PORT")
    return bool(environ.get("WORKER_PROCESSES")) and not given


def master_port(epoch: int) -> int:
    """Return the port of rank 0 in an epoch: 29500 to 30490, in steps of 10.

    All pods agree because it depends on the epoch alone. An epoch never has the port of the one
    before, nor a port next to it, which programs derive for other purposes (``MASTER_PORT + 1``): a
    process of an earlier epoch that still listens or connects is not taken for one of this epoch.
    The same port returns after 100 epochs. All are below the range from which Linux chooses ports
    for connections (32768 and higher).
    """
    return FIRST_MASTER_PORT + PORT_STEP * (epoch % PORTS)


def epoch_variables(epoch: int, *, with_port: bool) -> dict[str, str]:
    """Return the variables of the worker's processes that depend on the epoch.

    Args:
        epoch: epoch in which they run.
        with_port: True if the agent chooses ``MASTER_PORT``.
    """
    port = {"MASTER_PORT": str(master_port(epoch))} if with_port else {}
    return {EPOCH_VARIABLE: str(epoch), **port}


def encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return variables as an environment has them, without empty ones."""
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items() if value}


def memory_file(
    environ: Mapping[str, str], variable: str, name: str, *, namespace: str, pod: str
) -> str:
    """Return the path of a file for agent and worker, from a variable or in memory.

    The pod is in its name because pods with ``hostIPC`` share the folder.

    Raises:
        ConfigurationError: the path is not absolute.
    """
    path = environ.get(variable) or f"{SHARED_MEMORY}/jobset-{name}.{f'{namespace}.{pod}'[-200:]}"
    if not path.startswith("/") or "\0" in path:
        raise ConfigurationError(f"{variable} must be an absolute path: {path!r}")
    return path


def seconds_of(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return a variable as a number of seconds, at most a day.

    Raises:
        ConfigurationError: the value is not such a number.
    """
    text = environ.get(name, "")
    if not text:
        return default
    short = len(text.partition(".")[0]) <= 5
    if not (short and is_decimal(text) and float(text) <= MAX_GRACE_S):
        raise ConfigurationError(f"{name} must be a number from 0 to {MAX_GRACE_S:.0f}: {text!r}")
    return float(text)


def _codes(text: str) -> frozenset[int]:
    codes = set()
    for word in text.replace(",", " ").split():
        if not is_number(word, 1, 255):
            raise ConfigurationError(
                f"END_POD_EXIT_CODES must be integers from 1 to 255, with commas: {text!r}"
            )
        codes.add(int(word))
    return frozenset(codes)


def _signal(environ: Mapping[str, str], variable: str, default: signal.Signals) -> int:
    text = environ.get(variable, "")
    if not text:
        return int(default)
    name = text.upper()
    try:
        number = int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        number = int(text) if is_number(text, 1, signal.NSIG) else 0
    if number not in signal.valid_signals() or number in {signal.SIGKILL, signal.SIGSTOP}:
        raise ConfigurationError(f"{variable} is no signal that can be sent: {text!r}")
    return number
