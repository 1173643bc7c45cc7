"""The supervisor's own settings: environment variables only.

Flags would have to be told from the worker's command line, and the environment is what pod
templates set. The variables stay in the worker's environment like all others, unless they have the
prefix ``JOBSET_AGENT_``: those are for the supervisor alone, win over the same name without it, and
are what admission injects.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Final

from jobsetpy.agent.settings import ConfigurationError
from jobsetpy.agent.worker_rules import Rules
from jobsetpy.api import keys

DEFAULT_GRACE_S: Final = 10.0
MAX_GRACE_S: Final = 86400.0


def own_environ(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment as the supervisor reads it.

    With variables that are its own, these under their plain names and what the kubelet tells of the
    API server: then whatever else there is, is the worker's.
    """
    prefix = keys.AGENT_VARIABLE_PREFIX
    own = {name.removeprefix(prefix): environ[name] for name in environ if name.startswith(prefix)}
    if not own:
        return environ
    return {name: environ[name] for name in environ if name.startswith("KUBERNETES_")} | own


def workers_environ(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment as the worker gets it: without the supervisor's own variables."""
    prefix = keys.AGENT_VARIABLE_PREFIX.encode()
    return {name: value for name, value in environ.items() if not name.startswith(prefix)}


def load_rules(environ: Mapping[str, str]) -> Rules:
    """Read ``WORKER_GRACE_SECONDS``, ``END_POD_EXIT_CODES`` and the two signals.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    return Rules(
        grace_s=_seconds(environ.get("WORKER_GRACE_SECONDS", "")),
        end_codes=_codes(environ.get("END_POD_EXIT_CODES", "")),
        stop_signal=_signal(environ, "WORKER_STOP_SIGNAL", signal.SIGTERM),
        dump_signal=_signal(environ, "HANG_SIGNAL", signal.SIGABRT),
    )


def log_choice(environ: Mapping[str, str]) -> str:
    """What the agent writes to the standard error it shares with the worker.

    ``on``: a line for each transition; ``problems``: what goes wrong; ``off``: nothing.

    Raises:
        ConfigurationError: ``AGENT_LOG`` is none of these.
    """
    text = environ.get("AGENT_LOG", "") or "on"
    if text not in {"on", "problems", "off"}:
        raise ConfigurationError(f'AGENT_LOG must be "on", "problems" or "off": {text!r}')
    return text


def split_command(argv: Sequence[str]) -> list[str]:
    """The worker's command from the arguments after ``supervise``: all after the first ``--``.

    Raises:
        ConfigurationError: there is no command, or something before the dashes.
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


def _seconds(text: str) -> float:
    if not text:
        return DEFAULT_GRACE_S
    whole, dot, part = text.partition(".")
    digits = whole + part
    valid = digits.isascii() and digits.isdecimal() and bool(whole) and (bool(part) or not dot)
    if not (valid and len(whole) <= 5 and float(text) <= MAX_GRACE_S):
        raise ConfigurationError(
            f"WORKER_GRACE_SECONDS must be a number from 0 to {MAX_GRACE_S:.0f}: {text!r}"
        )
    return float(text)


def _codes(text: str) -> frozenset[int]:
    codes = set()
    for word in text.replace(",", " ").split():
        if not (word.isascii() and word.isdecimal() and 1 <= int(word[:4]) <= 255):
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
        number = int(text[:3]) if text.isascii() and text.isdecimal() else 0
    if number not in signal.valid_signals() or number in {signal.SIGKILL, signal.SIGSTOP}:
        raise ConfigurationError(f"{variable} is no signal that can be sent: {text!r}")
    return number
