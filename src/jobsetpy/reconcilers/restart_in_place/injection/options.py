"""User's annotations about the injected agent, and their combination.

An annotation on a pod template overrides the same one on the JobSet, so that ReplicatedJobs may
differ.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.api.hang_sections import SECTIONS_FORM, hang_sections
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import (
    WORKER_SETTINGS,
    Ranks,
    not_supervised,
    read_health,
    read_processes,
    read_standby,
)
from jobsetpy.reconcilers.restart_in_place.job_rules import ENDING_ACTIONS
from jobsetpy.reconcilers.rules.annotations import (
    MAX_SECONDS,
    Note,
    NoteReader,
    is_seconds,
    note_field,
)
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid, required
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, number, objects, text

MAX_HANG_S = 604800
AUTO_HANG = "auto"
"""Value in place of seconds: the limit is five times the longest step observed by the agent."""

MAX_END_CODES = 64
DEFAULT_BARRIER_PORT = 8080

HANG_SETTINGS = (
    keys.IN_PLACE_HANG_ANNOTATION,
    keys.IN_PLACE_HANG_FIRST_ANNOTATION,
    keys.IN_PLACE_HANG_SECTIONS_ANNOTATION,
    keys.IN_PLACE_HANG_SIGNAL_ANNOTATION,
)
SETTINGS = (
    keys.IN_PLACE_CONTAINER_ANNOTATION,
    keys.IN_PLACE_GRACE_ANNOTATION,
    keys.IN_PLACE_END_CODES_ANNOTATION,
    keys.IN_PLACE_UNFIT_CODES_ANNOTATION,
    keys.IN_PLACE_BARRIER_PORT_ANNOTATION,
    *keys.INJECTED_ANNOTATIONS,
    *HANG_SETTINGS,
    *WORKER_SETTINGS,
    keys.IN_PLACE_SPARES_ANNOTATION,
    keys.IN_PLACE_SPARE_JOBS_ANNOTATION,
    keys.IN_PLACE_HEARTBEAT_ANNOTATION,
)

_WHOLE_SECONDS = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
_HANG_VARIABLES = {
    keys.IN_PLACE_HANG_ANNOTATION: "HANG_SECONDS",
    keys.IN_PLACE_HANG_FIRST_ANNOTATION: "HANG_FIRST_SECONDS",
    keys.IN_PLACE_HANG_SECTIONS_ANNOTATION: "HANG_SECTIONS",
    keys.IN_PLACE_HANG_SIGNAL_ANNOTATION: "HANG_SIGNAL",
}
_CODE = re.compile(r"[1-9][0-9]{0,2}")


@attrs.frozen(kw_only=True)
class Options:
    """Options for injection into one pod template.

    Args:
        supervised: True for a supervisor, False for a sidecar.
        workers: indices of the containers whose failure restarts the group; one if supervised.
        grace: ``WORKER_GRACE_SECONDS`` as given by the user, "" for the agent's default.
        end_codes: exit codes of a worker that end its pod; ascending.
        end_codes_given: True if the user has set any, not only through the Job's own policy.
        hang: variables of the supervisor about hangs of its worker.
        processes: its variables about standby processes and about several processes.
        seats: its variables about seats, if a Job of the JobSet has spares.
        ring: its variables about heartbeats.
        barrier_port: port on which the sidecar answers the startup probe.
    """

    supervised: bool
    workers: frozenset[int]
    grace: str = ""
    end_codes: tuple[int, ...] = ()
    end_codes_given: bool = False
    hang: Mapping[str, str] = attrs.field(factory=dict)
    processes: Mapping[str, str] = attrs.field(factory=dict)
    seats: Mapping[str, str] = attrs.field(factory=dict)
    ring: Mapping[str, str] = attrs.field(factory=dict)
    barrier_port: int = DEFAULT_BARRIER_PORT


def read_options(
    notes: Json, template: Json, path: str, *, supervised: bool, ranks: Ranks | None = None
) -> Options | list[FieldError]:
    """Return the options of one ReplicatedJob, or the errors in them.

    Args:
        notes: the JobSet's annotations.
        template: the Job's spec.
        path: field path of the Job's spec.
        supervised: True for supervisor mode.
        ranks: ranks of its processes, if the annotation sets a number.
    """
    own = child(template, "template", "metadata", "annotations")
    pod = child(template, "template", "spec")

    def note(name: str) -> Note:
        if own.get(name) is not None:
            return Note(own[name], note_field(name, f"{path}.template"), own=True)
        return Note(notes.get(name), note_field(name), own=False)

    workers, problems = _workers(note(keys.IN_PLACE_CONTAINER_ANNOTATION), pod, path, supervised)
    grace, more = _grace(note(keys.IN_PLACE_GRACE_ANNOTATION), supervised)
    problems += more
    given = note(keys.IN_PLACE_END_CODES_ANNOTATION)
    codes, more = _codes(given)
    problems += more
    unfit = note(keys.IN_PLACE_UNFIT_CODES_ANNOTATION)
    unfit_codes, more = _codes(unfit)
    problems += more
    hang, more = _hang({name: note(name) for name in HANG_SETTINGS}, supervised)
    problems += more
    processes, more = _processes(note, template, path, ranks) if supervised else ({}, [])
    problems += more if supervised else not_supervised(note)
    port, more = _port(note(keys.IN_PLACE_BARRIER_PORT_ANNOTATION), pod, supervised)
    problems += more
    if problems:
        return problems
    names = {text(each, "name") for at, each in objects(pod, "containers") if at in workers}
    return Options(
        supervised=supervised,
        workers=workers,
        grace=grace,
        end_codes=tuple(sorted(codes | unfit_codes | _codes_of_policy(template, names))),
        end_codes_given=given.value is not None or unfit.value is not None,
        hang=hang,
        processes=processes,
        barrier_port=port,
    )


def _processes(
    note: NoteReader, template: Json, path: str, ranks: Ranks | None
) -> tuple[dict[str, str], list[FieldError]]:
    """Return variables about the worker's standby processes and processes, and errors."""
    pod = child(template, "template", "spec")
    workers, _ = _workers(note(keys.IN_PLACE_CONTAINER_ANNOTATION), pod, path, supervised=True)
    found: dict[str, str] = {}
    problems: list[FieldError] = []
    for at, worker in objects(pod, "containers"):
        if at in workers:
            where = f"{path}.template.spec.containers[{at}]"
            count = note(keys.IN_PLACE_PROCESSES_ANNOTATION)
            for more, wrong in (
                read_standby(note, worker),
                read_health(note, pod, f"{path}.template.spec"),
                read_processes(count, template, worker, where, ranks),
            ):
                found |= more
                problems += wrong
    return found, problems


def _workers(
    note: Note, pod: Json, path: str, supervised: bool
) -> tuple[frozenset[int], list[FieldError]]:
    """Return the indices of the worker containers, and errors.

    A pod has one epoch, so at most one supervisor: of several containers, the one that it runs must
    be named. A sidecar restarts all containers; unless one is named, each of them counts.
    """
    containers = objects(pod, "containers")
    indices = {text(each, "name"): at for at, each in containers}
    if isinstance(note.value, str) and note.value in indices:
        return frozenset({indices[note.value]}), []
    if note.value is not None and (note.own or len(containers) != 1):
        # On the JobSet it may name a container of another ReplicatedJob.
        why = f"no container of this name is in {path}.template.spec.containers"
        return frozenset(), [invalid(note.field, note.value, why)]
    if supervised and len(containers) > 1:
        why = (
            "a supervisor runs one container's command, and the pod has "
            f"{len(containers)}: name the worker by this annotation, on the JobSet or here"
        )
        field = note_field(keys.IN_PLACE_CONTAINER_ANNOTATION, f"{path}.template")
        return frozenset(), [required(field, why)]
    return frozenset(at for at, _ in containers), []


def _grace(note: Note, supervised: bool) -> tuple[str, list[FieldError]]:
    value = note.value
    if value is None:
        return "", []
    if not supervised:
        why = (
            "has no effect in sidecar mode, where the kubelet stops the containers: use "
            '"supervisor", or remove it'
        )
        return "", [invalid(note.field, value, why)]
    if not is_seconds(value):
        return "", [invalid(note.field, value, f"must be a number from 0 to {MAX_SECONDS}")]
    return str(value), []


def _hang(notes: Mapping[str, Note], supervised: bool) -> tuple[dict[str, str], list[FieldError]]:
    """Return the supervisor's variables about hangs of its worker, and errors."""
    given = {name: note for name, note in notes.items() if note.value is not None}
    if given and not supervised:
        why = (
            "has no effect in sidecar mode, where the agent does not see the worker's file: use "
            '"supervisor", or remove it'
        )
        return {}, [invalid(note.field, note.value, why) for note in given.values()]
    after, first = keys.IN_PLACE_HANG_ANNOTATION, keys.IN_PLACE_HANG_FIRST_ANNOTATION
    problems = []
    for name, note in given.items():
        why = _hang_problem(name, note.value)
        if not why and after not in given:
            why = f"has no effect without the annotation {after}: set it, or remove this one"
        if why:
            problems.append(invalid(note.field, note.value, why))
    fixed = not problems and first in given and given[after].value != AUTO_HANG
    if fixed and int(given[first].value) < int(given[after].value):
        why = (
            f"must not be less than the annotation {after}: the first step after a start takes "
            "longer than those that follow"
        )
        problems.append(invalid(given[first].field, given[first].value, why))
    return {_HANG_VARIABLES[name]: str(note.value) for name, note in given.items()}, problems


def _hang_problem(name: str, value: object) -> str:
    """Return why an annotation about hangs is invalid; "" if it is not."""
    if name == keys.IN_PLACE_HANG_SIGNAL_ANNOTATION:
        return "" if _is_signal(value) else "must be a signal that can be caught, as SIGUSR1"
    if name == keys.IN_PLACE_HANG_SECTIONS_ANNOTATION:
        return "" if isinstance(value, str) and hang_sections(value) else SECTIONS_FORM
    auto = name == keys.IN_PLACE_HANG_ANNOTATION
    seconds = isinstance(value, str) and _WHOLE_SECONDS.fullmatch(value)
    if (auto and value == AUTO_HANG) or (seconds and int(str(value)) <= MAX_HANG_S):
        return ""
    why = f"must be a whole number of seconds from 1 to {MAX_HANG_S}"
    return f'{why}, or "{AUTO_HANG}"' if auto else why


def _is_signal(value: object) -> bool:
    if not isinstance(value, str):
        return False
    name = value.upper()
    known = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    return known is not None and known not in {signal.SIGKILL, signal.SIGSTOP}


def _codes(note: Note) -> tuple[frozenset[int], list[FieldError]]:
    if note.value is None:
        return frozenset(), []
    words = note.value.replace(",", " ").split() if isinstance(note.value, str) else [""]
    if not all(_CODE.fullmatch(word) and int(word) <= 255 for word in words):
        why = 'must be exit codes from 1 to 255, with commas, such as "3,4"'
        return frozenset(), [invalid(note.field, note.value, why)]
    codes = frozenset(int(word) for word in words)
    if len(codes) > MAX_END_CODES:
        why = f"must be at most {MAX_END_CODES} exit codes"
        return frozenset(), [invalid(note.field, note.value, why)]
    return codes, []


def _codes_of_policy(template: Json, workers: set[str]) -> frozenset[int]:
    """Return exit codes for which the Job's pod failure policy fails the Job, or an index of it.

    They would not reach the policy if the group were restarted in place instead.
    """
    found: set[int] = set()
    for _, rule in objects(child(template, "podFailurePolicy"), "rules"):
        codes = child(rule, "onExitCodes")
        container = text(codes, "containerName")
        if (
            text(rule, "action") in ENDING_ACTIONS
            and text(codes, "operator") == "In"
            and (not container or container in workers)
        ):
            found |= {each for each in items(codes, "values") if isinstance(each, int)}
    return frozenset(each for each in found if 0 < each <= 255)


def _port(note: Note, pod: Json, supervised: bool) -> tuple[int, list[FieldError]]:
    if note.value is None:
        return _free_port(pod), []
    if supervised:
        why = "has no effect in supervisor mode, which needs no port: remove it"
        return 0, [invalid(note.field, note.value, why)]
    value = note.value if isinstance(note.value, str) else ""
    if not (re.fullmatch(r"[1-9][0-9]{0,4}", value) and int(value) <= 65535):
        return 0, [invalid(note.field, note.value, "must be a port from 1 to 65535")]
    if int(value) in _used_ports(pod):
        return 0, [invalid(note.field, note.value, "is a port of another container of the pod")]
    return int(value), []


def _free_port(pod: Json) -> int:
    used = _used_ports(pod)
    return next(p for p in range(DEFAULT_BARRIER_PORT, 65536) if p not in used)


def _used_ports(pod: Mapping[str, Any]) -> set[int | None]:
    return {
        number(port, "containerPort")
        for kind in ("initContainers", "containers")
        for _, container in objects(pod, kind)
        for _, port in objects(container, "ports")
    }
