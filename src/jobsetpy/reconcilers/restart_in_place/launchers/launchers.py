"""Launchers of distributed training in a container's command, and what replaces them.

``torchrun``, ``accelerate launch`` and ``deepspeed`` start a pod's processes and number them. Under
restart in place the supervisor does that, with the annotation for several processes. A launcher
below it works, but each restart then imports the framework twice, one after the other, and there is
no Python command for which a standby process could be kept.

Everything here is a pure function of words: nothing is looked up, and no input raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from jobsetpy.api.python_command import split_python
from jobsetpy.reconcilers.restart_in_place.launchers.options import (
    ACCELERATE,
    DEEPSPEED,
    MODULES,
    NOTES,
    PROGRAMS,
    VARIABLES,
    Launcher,
)

MAX_PROCESSES: Final = 64
MAX_TEXT: Final = 2500
"""Maximum number of characters of a command that is parsed."""
_MAX_VALUE: Final = 100
"""Maximum number of characters of a variable's value that is used."""
_MAX_BEFORE: Final = 50

_HELPERS: Final = frozenset({"env", "nohup", "time"})
"""Programs that may come before the launcher."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_IN_TEXT: Final = re.compile(r"\b(torchrun|accelerate launch|deepspeed|torch\.distributed)[.\s]\S")
_IN_SHELL: Final = (
    "it is in the text of a shell, and is not translated: write its words as the container's "
    "command, a folder as workingDir, and variables as env"
)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)", re.ASCII)


@attrs.frozen(kw_only=True)
class Translation:
    """Replacement of a launcher.

    Args:
        launcher: its name, such as ``accelerate launch``.
        command: the worker's command; empty if it cannot be translated, and ``notes`` has why.
        processes: number of processes in each pod; ``None`` if the command does not say it.
        env: variables that the launcher would set, other than those of the supervisor.
        max_restarts: the launcher's own limit; 0 for none.
        notes: what has no replacement, or needs a decision, one sentence each.
    """

    launcher: str
    command: tuple[str, ...] = ()
    processes: int | None = None
    env: Mapping[str, str] = attrs.field(factory=dict)
    max_restarts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def preloads(self) -> bool:
        """Return True if a standby process can be kept for the command."""
        return bool(self.command) and not isinstance(split_python(self.command), str)


class _Launch(NamedTuple):
    """A launcher and its arguments, and the variables that are set before it."""

    launcher: Launcher
    interpreter: list[str]
    arguments: list[str]
    env: dict[str, str]


def translate(
    words: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    gpus: int = 0,
    pods: int = 0,
) -> Translation | None:
    """Return what replaces the launcher in a container's command; ``None`` if there is none.

    Args:
        words: ``command`` and ``args`` of the container.
        variables: its variables, "" for a value that is not known.
        gpus: accelerators of the container, as its resources say; 0 if it has none.
        pods: number of pods of the ReplicatedJob; 0 if unknown.
    """
    command = _unsupervised(words)
    if name := _in_shell(command):
        return Translation(launcher=name, notes=(_IN_SHELL,))
    is_long = len(" ".join(command)) > MAX_TEXT
    start = [word[:MAX_TEXT] for word in command[:_MAX_BEFORE]]
    launch = _launch_in(start if is_long else command)
    if launch is None:
        return None
    if is_long:
        why = f"the command is longer than {MAX_TEXT} characters, and is not translated"
        return Translation(launcher=launch.launcher.name, notes=(why,))
    known = {k: v if len(v) <= _MAX_VALUE else "" for k, v in (variables or {}).items()}
    return _translated(launch, known, gpus, pods)


def _in_shell(command: Sequence[str]) -> str:
    """Return the name of a launcher in a text that a shell runs because of ``-c``; "" for none."""
    if not command or command[0].rpartition("/")[2] not in _SHELLS:
        return ""
    at = next((at for at, word in enumerate(command) if word[0:1] == "-" and "c" in word), None)
    texts = [] if at is None else command[at + 1 :]
    return next((found[1] for each in texts if (found := _IN_TEXT.search(each))), "")


def _unsupervised(words: Sequence[str]) -> list[str]:
    """Return the words without a supervisor before them, injected or written out."""
    for at, word in enumerate(words[:8]):
        if word.rpartition("/")[2] == "supervise":
            rest = list(words[at + 1 :])
            return rest[1:] if rest[:1] == ["--"] else rest
    return list(words)


def _launch_in(words: Sequence[str]) -> _Launch | None:
    """Return the launcher that a command starts with, after variables and small helpers."""
    left, path, name = list(words), "", ""
    own: dict[str, str] = {}
    while left:
        path, _, name = left[0].rpartition("/")
        found = _ASSIGNMENT.fullmatch(left[0])
        if found:
            own[found[1]] = found[2]
        elif name in {"tini", "dumb-init", "catatonit"}:
            while len(left) > 1 and left[1].startswith("-"):
                del left[1]
        elif name not in _HELPERS:
            break
        del left[0]
    else:
        return None
    arguments = left[1:]
    if name == "accelerate" and arguments[:1] == ["launch"]:
        name, arguments = "accelerate-launch", arguments[1:]
    if name in PROGRAMS:
        python = [f"{path}/python" if path else "python"]
        return _Launch(PROGRAMS[name], python, arguments, own)
    parts = split_python(left)
    if isinstance(parts, str) or parts.program[0] != "-m":
        return None
    module, *arguments = parts.program[1:] or ("",)
    if module in {"accelerate", "accelerate.commands.accelerate_cli"}:
        module, arguments = "accelerate.commands." + "".join(arguments[:1]), arguments[1:]
    if module not in MODULES:
        return None
    return _Launch(MODULES[module], parts.interpreter, arguments, own)


def _parse(words: Sequence[str], launcher: Launcher) -> tuple[dict[str, str], list[str]] | str:
    """Return the options, with "" for flags, and the program with its arguments.

    Returns:
        As a text, the reason why the words cannot be parsed.
    """
    options: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        given, equals, value = word.partition("=")
        if word.startswith("--"):
            name, option = launcher.find(given[2:].replace("-", "_"))
        else:
            name, option = launcher.find(launcher.short.get(word[1], ""))
            given, equals, value = word[:2], word[2:], word[2:].removeprefix("=")
        if option is None:
            return f"its option {short(given)} is not known here"
        if option.has_value and not equals:
            if not left:
                return f"its option {short(given)} has no value"
            value = left.pop(0)
        options[name] = value if option.has_value else ""
    return (options, left) if left else "it names no program"


def _translated(launch: _Launch, variables: Mapping[str, str], gpus: int, pods: int) -> Translation:
    launcher = launch.launcher
    parsed = _parse([_resolved(word, variables) for word in launch.arguments], launcher)
    if isinstance(parsed, str):
        note = f"{launcher.name} is not translated: {parsed}"
        return Translation(launcher=launcher.name, notes=(note,))
    options, rest = parsed
    # The program's own words keep their variables: the kubelet resolves them.
    words = launch.arguments[len(launch.arguments) - len(rest) :]
    notes = _notes(launcher, options, pods)
    processes = _processes(launcher, options, gpus, notes)
    python = [*launch.interpreter, *(() if "-u" in launch.interpreter else ("-u",))]
    limit = options.get("max_restarts", "")
    return Translation(
        launcher=launcher.name,
        command=(
            *(() if "no_python" in options else python),
            *(("-m",) if "module" in options and "no_python" not in options else ()),
            *words,
        ),
        processes=processes,
        env=_env(launch, options, variables, processes),
        max_restarts=int(limit) if _NUMBER.fullmatch(limit) else 0,
        notes=tuple(notes),
    )


def _env(
    launch: _Launch, options: Mapping[str, str], variables: Mapping[str, str], count: int | None
) -> dict[str, str]:
    """Return the variables that the launcher would set, and those of its options."""
    env = dict(launch.env)
    for name, (variable, value) in VARIABLES.items():
        if name in options and (name, options[name]) != ("gpu_ids", "all"):
            env[variable] = value or options[name]
    if launch.launcher is DEEPSPEED:
        return env
    threads = options.get("num_cpu_threads_per_process", "1")
    if count != 1 and "OMP_NUM_THREADS" not in variables and _NUMBER.fullmatch(threads):
        env.setdefault("OMP_NUM_THREADS", threads)
    is_elastic = launch.launcher is not ACCELERATE or count != 1
    if is_elastic and "TORCHELASTIC_RUN_ID" not in variables:
        # Lightning takes ranks from the environment where it finds this variable of torchrun.
        env.setdefault("TORCHELASTIC_RUN_ID", "jobset")
    return env


def _processes(
    launcher: Launcher, options: Mapping[str, str], gpus: int, notes: list[str]
) -> int | None:
    """Return the number of processes of a pod; ``None`` with a note if it is not known."""
    machines, option = options.get("num_machines", "1"), launcher.counted_by
    text = options.get(launcher.counted_by, options.get("num_accelerators", launcher.default))
    if text in {"", "gpu", "auto", "-1"} and gpus and "cpu" not in options:
        text, machines = str(gpus), "1"
    if not _NUMBER.fullmatch(text) or not _NUMBER.fullmatch(machines):
        said = f"--{option} {short(text, 20)}" if text else f"no --{option}"
        notes.append(f"{said}: write the number of processes of a pod into the annotation")
        return None
    count, left = divmod(int(text), int(machines))
    if left or not 1 <= count <= MAX_PROCESSES:
        where = f"in each of {machines} pods" if int(machines) > 1 else "in a pod"
        notes.append(f"--{option} {text}: there are 1 to {MAX_PROCESSES} processes {where}")
        return None
    return count


def _notes(launcher: Launcher, options: Mapping[str, str], pods: int) -> list[str]:
    """Return what has no replacement, or needs a decision."""
    notes = []
    for name, value in options.items():
        given = f"--{name}{' ' if value else ''}{short(value, 40)}"
        if name in {"nnodes", "num_machines", "num_nodes"} and ":" in value:
            notes.append(
                f"{given}: the number of processes is fixed; a lost pod is replaced, and the "
                "others wait for it"
            )
        elif name in {"nnodes", "num_machines", "num_nodes"} and pods and value != str(pods):
            notes.append(f"{given}: the ReplicatedJob has {pods} pods, and all of them take part")
        elif name == "standalone" and pods > 1:
            notes.append(
                f"{given}: each of the {pods} pods trains by itself; under the supervisor their "
                "ranks are one world"
            )
        elif name in NOTES and (name != "max_restarts" or _NUMBER.fullmatch(value)):
            notes.append(NOTES[name].format(short(value, 40)))
        elif not launcher.mark(name):
            notes.append(f"{given}: has no replacement here; set it up in the program")
    output = sorted(name for name in options if launcher.mark(name) == ">")
    if output:
        notes.append(f"--{', --'.join(output)}: all output is in the pod's log")
    if launcher.no_rank and launcher.no_rank not in options:
        notes.append("the program gets no argument --local_rank: it reads the variable LOCAL_RANK")
    return notes


def _resolved(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with the values of variables that are known."""
    return _REFERENCE.sub(lambda found: variables.get(found[1]) or found[0], word)


def short(text: str, longest: int = 80) -> str:
    """Return a text in one line, for a message."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
