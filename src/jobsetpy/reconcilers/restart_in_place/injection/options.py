"""User's annotations about the injected agent, and their combination."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import AUTO_HANG, TABLE, read
from jobsetpy.reconcilers.restart_in_place.injection.annotations import Annotations
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import (
    Ranks,
    health_variables,
    output_variables,
    process_variables,
    standby_variables,
)
from jobsetpy.reconcilers.restart_in_place.job_controller.template_rules import ENDING_ACTIONS
from jobsetpy.reconcilers.rules.annotations import note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, required
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, number, objects, text

DEFAULT_BARRIER_PORT = 8080

_VARIABLES = {
    keys.IN_PLACE_GRACE_ANNOTATION: "WORKER_GRACE_SECONDS",
    keys.IN_PLACE_HANG_ANNOTATION: "HANG_SECONDS",
    keys.IN_PLACE_HANG_FIRST_ANNOTATION: "HANG_FIRST_SECONDS",
    keys.IN_PLACE_HANG_SECTIONS_ANNOTATION: "HANG_SECTIONS",
    keys.IN_PLACE_HANG_SIGNAL_ANNOTATION: "HANG_SIGNAL",
}
_CODE_SETTINGS = (keys.IN_PLACE_END_CODES_ANNOTATION, keys.IN_PLACE_UNFIT_CODES_ANNOTATION)
SETTINGS = (
    keys.IN_PLACE_RESTART_ANNOTATION,
    *(each.name for each in TABLE.values() if each.agent),
    *keys.INJECTED_ANNOTATIONS,
)
"""Annotations that are built into the pod templates."""


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
    codes = frozenset[int]().union(
        *(read(name, own, shared, default=()) for name in _CODE_SETTINGS)
    )
    _needs(notes)
    _hang_first(notes)
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
    variables = {_VARIABLES[name]: notes.text(name) for name in _VARIABLES}
    for at, worker in objects(pod, "containers"):
        if at in workers:
            field = f"{where}.containers[{at}]"
            variables |= standby_variables(notes, worker) | health_variables(notes, pod, where)
            variables |= process_variables(notes, template, worker, field, ranks)
            variables |= output_variables(notes, pod, worker, where)
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


def _needs(notes: Annotations) -> None:
    """Refuse settings without the one that they belong to."""
    for name, row in TABLE.items():
        if (
            row.agent
            and row.needs
            and not any(notes.value(each) not in (None, "off") for each in row.needs)
        ):
            why = f"has no effect without the annotation {row.needs[0]}: set it, or remove this one"
            notes.refuse(name, why)


def _hang_first(notes: Annotations) -> None:
    after, first = keys.IN_PLACE_HANG_ANNOTATION, keys.IN_PLACE_HANG_FIRST_ANNOTATION
    limit_s, first_s = (read(name, notes.own, notes.shared) for name in (after, first))
    if first_s and limit_s and limit_s != AUTO_HANG and first_s < limit_s:
        why = (
            f"must not be less than the annotation {after}: the first step after a start takes "
            "longer than those that follow"
        )
        notes.refuse(first, why)


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
    """Return the port of a sidecar."""
    name, used = keys.IN_PLACE_BARRIER_PORT_ANNOTATION, _used_ports(pod)
    port: int | None = read(name, notes.own, notes.shared)
    if port is None:
        return next(port for port in range(DEFAULT_BARRIER_PORT, 65536) if port not in used)
    if port in used:
        notes.refuse(name, "is a port of another container of the pod")
    return port


def _used_ports(pod: Mapping[str, Any]) -> set[int | None]:
    return {
        number(port, "containerPort")
        for kind in ("initContainers", "containers")
        for _, container in objects(pod, kind)
        for _, port in objects(container, "ports")
    }
