"""User's annotations about the injected agent, and their combination."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.api.hang_sections import SECTIONS_FORM, hang_sections
from jobsetpy.reconcilers.restart_in_place.injection.annotations import Annotations
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import (
    WORKER_SETTINGS,
    Ranks,
    health_variables,
    process_variables,
    standby_variables,
)
from jobsetpy.reconcilers.restart_in_place.job_controller.template_rules import ENDING_ACTIONS
from jobsetpy.reconcilers.rules.annotations import MAX_SECONDS, is_seconds, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, required
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, number, objects, text

MAX_HANG_S = 604800
AUTO_HANG = "auto"
"""Value in place of seconds: the limit is five times the longest step observed by the agent."""

MAX_END_CODES = 64
DEFAULT_BARRIER_PORT = 8080

_HANG_VARIABLES = {
    keys.IN_PLACE_HANG_ANNOTATION: "HANG_SECONDS",
    keys.IN_PLACE_HANG_FIRST_ANNOTATION: "HANG_FIRST_SECONDS",
    keys.IN_PLACE_HANG_SECTIONS_ANNOTATION: "HANG_SECTIONS",
    keys.IN_PLACE_HANG_SIGNAL_ANNOTATION: "HANG_SIGNAL",
}
HANG_SETTINGS = tuple(_HANG_VARIABLES)
_CODE_SETTINGS = (keys.IN_PLACE_END_CODES_ANNOTATION, keys.IN_PLACE_UNFIT_CODES_ANNOTATION)
SETTINGS = (
    keys.IN_PLACE_CONTAINER_ANNOTATION,
    keys.IN_PLACE_GRACE_ANNOTATION,
    *_CODE_SETTINGS,
    keys.IN_PLACE_BARRIER_PORT_ANNOTATION,
    *keys.INJECTED_ANNOTATIONS,
    *HANG_SETTINGS,
    *WORKER_SETTINGS,
    keys.IN_PLACE_SPARES_ANNOTATION,
    keys.IN_PLACE_SPARE_JOBS_ANNOTATION,
    keys.IN_PLACE_HEARTBEAT_ANNOTATION,
)

_WHOLE_SECONDS = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
_ONLY_SUPERVISED = {
    name: f'has no effect in sidecar mode, {why}: use "supervisor", or remove it'
    for why, names in (
        ("where the kubelet stops the containers", (keys.IN_PLACE_GRACE_ANNOTATION,)),
        ("where the agent does not see the worker's file", HANG_SETTINGS),
        ("which starts no processes", WORKER_SETTINGS),
    )
    for name in names
}
"""Annotations that a sidecar does not support, and why."""
_CODE = re.compile(r"[1-9][0-9]{0,2}")


@attrs.frozen(kw_only=True)
class Options:
    """Options for injection into one pod template.

    Args:
        supervised: True for a supervisor, False for a sidecar.
        workers: indices of the containers whose failure restarts the group; one if supervised.
        end_codes: exit codes of a worker that end its pod; ascending.
        end_codes_given: True if the user has set any, not only through the Job's own policy.
        variables: variables of the supervisor, without their prefix; empty ones are left out.
        barrier_port: port on which the sidecar answers the startup probe.
    """

    supervised: bool
    workers: frozenset[int]
    end_codes: tuple[int, ...] = ()
    end_codes_given: bool = False
    variables: Mapping[str, str] = attrs.field(factory=dict)
    barrier_port: int = DEFAULT_BARRIER_PORT


def read_options(
    shared: Json, template: Json, path: str, *, supervised: bool, ranks: Ranks | None = None
) -> Options | list[FieldError]:
    """Return the options of one ReplicatedJob, or the errors in them.

    Args:
        shared: the JobSet's annotations.
        template: the Job's spec.
        path: field path of the Job's spec.
        supervised: True for supervisor mode.
        ranks: ranks of its processes, if the annotation sets a number.
    """
    own = child(template, "template", "metadata", "annotations")
    pod = child(template, "template", "spec")
    notes = Annotations(shared, own, f"{path}.template")
    workers = _workers(notes, pod, supervised)
    codes = frozenset().union(*(_codes(notes, name) for name in _CODE_SETTINGS))
    variables, port = {}, DEFAULT_BARRIER_PORT
    if supervised:
        variables = _supervisor_variables(notes, template, path, workers, ranks)
    else:
        port = _sidecar_port(notes, pod)
    if notes.problems:
        return notes.problems
    names = {text(each, "name") for at, each in objects(pod, "containers") if at in workers}
    return Options(
        supervised=supervised,
        workers=workers,
        end_codes=tuple(sorted(codes | _codes_of_policy(template, names))),
        end_codes_given=any(notes.value(name) is not None for name in _CODE_SETTINGS),
        variables=variables,
        barrier_port=port,
    )


def _supervisor_variables(
    notes: Annotations, template: Json, path: str, workers: Collection[int], ranks: Ranks | None
) -> dict[str, str]:
    """Return the supervisor's variables that follow from annotations."""
    pod, where = child(template, "template", "spec"), f"{path}.template.spec"
    variables = _grace(notes) | _hang(notes)
    for at, worker in objects(pod, "containers"):
        if at in workers:
            field = f"{where}.containers[{at}]"
            variables |= standby_variables(notes, worker) | health_variables(notes, pod, where)
            variables |= process_variables(notes, template, worker, field, ranks)
    why = "has no effect in supervisor mode, which needs no port: remove it"
    notes.refuse(keys.IN_PLACE_BARRIER_PORT_ANNOTATION, why)
    return variables


def _workers(notes: Annotations, pod: Json, supervised: bool) -> frozenset[int]:
    """Return the indices of the worker containers; none after an error.

    A pod has one epoch, so at most one supervisor: of several containers, the one that it runs must
    be named. A sidecar restarts all containers; unless one is named, each of them counts.
    """
    name = keys.IN_PLACE_CONTAINER_ANNOTATION
    value, containers = notes.value(name), objects(pod, "containers")
    indices = {text(each, "name"): at for at, each in containers}
    if isinstance(value, str) and value in indices:
        return frozenset({indices[value]})
    if value is not None and (notes.is_own(name) or len(containers) != 1):
        # On the JobSet it may name a container of another ReplicatedJob.
        notes.refuse(name, f"no container of this name is in {notes.path}.spec.containers")
        return frozenset()
    if supervised and len(containers) > 1:
        why = (
            "a supervisor runs one container's command, and the pod has "
            f"{len(containers)}: name the worker by this annotation, on the JobSet or here"
        )
        notes.problems.append(required(note_field(name, notes.path), why))
        return frozenset()
    return frozenset(at for at, _ in containers)


def _grace(notes: Annotations) -> dict[str, str]:
    name = keys.IN_PLACE_GRACE_ANNOTATION
    if not is_seconds(notes.value(name)):
        notes.refuse(name, f"must be a number from 0 to {MAX_SECONDS}")
    return {"WORKER_GRACE_SECONDS": notes.text(name)}


def _hang(notes: Annotations) -> dict[str, str]:
    """Return the supervisor's variables about hangs of its worker."""
    given = {name: notes.value(name) for name in HANG_SETTINGS}
    given = {name: value for name, value in given.items() if value is not None}
    after, first = keys.IN_PLACE_HANG_ANNOTATION, keys.IN_PLACE_HANG_FIRST_ANNOTATION
    wrong = {name: _hang_problem(name, value) for name, value in given.items()}
    if after not in given:
        why = f"has no effect without the annotation {after}: set it, or remove this one"
        wrong = {name: problem or why for name, problem in wrong.items()}
    fixed = not any(wrong.values()) and first in given and given[after] != AUTO_HANG
    if fixed and int(given[first]) < int(given[after]):
        wrong[first] = (
            f"must not be less than the annotation {after}: the first step after a start takes "
            "longer than those that follow"
        )
    for name, why in wrong.items():
        if why:
            notes.refuse(name, why)
    return {_HANG_VARIABLES[name]: str(value) for name, value in given.items()}


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


def _codes(notes: Annotations, name: str) -> frozenset[int]:
    value = notes.value(name)
    if value is None:
        return frozenset()
    words = value.replace(",", " ").split() if isinstance(value, str) else [""]
    if not all(_CODE.fullmatch(word) and int(word) <= 255 for word in words):
        notes.refuse(name, 'must be exit codes from 1 to 255, with commas, such as "3,4"')
        return frozenset()
    codes = frozenset(int(word) for word in words)
    if len(codes) > MAX_END_CODES:
        notes.refuse(name, f"must be at most {MAX_END_CODES} exit codes")
    return codes


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


def _sidecar_port(notes: Annotations, pod: Json) -> int:
    """Return the port of a sidecar, and refuse what it does not support."""
    for name, why in _ONLY_SUPERVISED.items():
        notes.refuse(name, why)
    name, used = keys.IN_PLACE_BARRIER_PORT_ANNOTATION, _used_ports(pod)
    given = notes.value(name)
    if given is None:
        return next(port for port in range(DEFAULT_BARRIER_PORT, 65536) if port not in used)
    valid = isinstance(given, str) and re.fullmatch(r"[1-9][0-9]{0,4}", given)
    port = int(given) if valid else 0
    if not 1 <= port <= 65535:
        notes.refuse(name, "must be a port from 1 to 65535")
    elif port in used:
        notes.refuse(name, "is a port of another container of the pod")
    return port


def _used_ports(pod: Mapping[str, Any]) -> set[int | None]:
    return {
        number(port, "containerPort")
        for kind in ("initContainers", "containers")
        for _, container in objects(pod, kind)
        for _, port in objects(container, "ports")
    }
