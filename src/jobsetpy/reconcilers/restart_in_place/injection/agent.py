"""Injection of the agent for restart in place into a JobSet that requests it by an annotation.

``jobset.sigs.k8s.io/in-place-restart-agent: supervisor`` (or ``sidecar``) and ``restartStrategy:
InPlaceRestart`` turn an ordinary JobSet into one whose group restarts in place. It is off by
default, since an unrequested container would be a surprise (KEP-467 plans it for its beta).

Order: injection comes first, on what the user wrote; then the defaults (``defaulting``), which find
``restartPolicy`` and the counts filled in already; then validation, which applies the same rules as
to a manifest without injection. Impossible injections are refused here, because only this module
knows the request. An update adds nothing that was not there before: see ``update``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection import pods, worker_variables
from jobsetpy.reconcilers.restart_in_place.injection.heartbeats import ring_variables
from jobsetpy.reconcilers.restart_in_place.injection.options import Options, read_options
from jobsetpy.reconcilers.rules.agent_containers import obstacles, runs_agent
from jobsetpy.reconcilers.rules.annotations import check_annotations, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, forbidden, invalid, required
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    Patch,
    child,
    copied,
    items,
    number,
    objects,
    text,
)
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of
from jobsetpy.reconcilers.rules.spares import spares_in

SIDECAR = "sidecar"
SUPERVISOR = "supervisor"


@attrs.frozen
class Injection:
    """Result of injection into a JobSet.

    Args:
        jobset: the JobSet with the additions.
        patch: the additions as a JSON patch (RFC 6902); empty if there are none.
        problems: errors for which it must be refused; then nothing was added.
    """

    jobset: Json
    patch: Patch = attrs.field(factory=list)
    problems: list[FieldError] = attrs.field(factory=list)


def inject(
    jobset: Json,
    *,
    image: str,
    settings: ContainerDefaults | None = None,
) -> Injection:
    """Add the agent to every ReplicatedJob of a new JobSet that requests it.

    Guarantees: without the annotation nothing happens; injected twice, the second patch is empty; a
    ReplicatedJob that has an agent keeps it and only gets the fields of its Job. Parts of a wrong
    type are left for the schema to refuse.

    Args:
        jobset: as the user wrote it, before defaulting.
        image: image of the agent; "" if the manager has none configured.
        settings: settings of the agent's containers, if not the defaults.
    """
    notes, spec = child(jobset, "metadata", "annotations"), child(jobset, "spec")
    if keys.IN_PLACE_AGENT_ANNOTATION not in notes:
        return Injection(jobset)
    mode = notes[keys.IN_PLACE_AGENT_ANNOTATION]
    stated = (keys.IN_PLACE_RESTART_ANNOTATION, keys.IN_PLACE_AGENT_ANNOTATION)
    name = next(each for each in stated if each in notes)
    problems = [*check_annotations(jobset).errors, *_strategy(spec, name)]
    if problems:
        return Injection(jobset, problems=problems)
    jobs = copied(list(items(spec, "replicatedJobs")))
    for at, template, pod in templates(jobs):
        fill_job_fields(template)
        if not runs_agent(pod):  # an agent in the template states its seats itself
            _add_spares(jobs[at], template, notes)
    group = _group_of(spec, notes, jobs, problems) if mode == SUPERVISOR else _Group()
    if problems:
        return Injection(jobset, problems=problems)
    agent = pods.AgentContainer(image=image, settings=settings or ContainerDefaults())
    for at, template, pod in templates(jobs):
        if not runs_agent(pod):
            problems += _add_agent(mode, at, jobs[at], template, notes, agent, group)
    if problems:
        return Injection(jobset, problems=list(dict.fromkeys(problems)))
    return injected(jobset, jobs)


def injected(jobset: Json, jobs: list[Any]) -> Injection:
    """Return a JobSet with changed templates of its ReplicatedJobs."""
    spec = child(jobset, "spec")
    given = items(spec, "replicatedJobs")
    patch: Patch = [
        {"op": "replace", "path": f"/spec/replicatedJobs/{at}/template/spec", "value": template}
        for at, template, _ in templates(jobs)
        if template != given[at]["template"]["spec"]
    ]
    patch += [
        {"op": "add", "path": f"/spec/replicatedJobs/{at}/replicas", "value": jobs[at]["replicas"]}
        for at, _, _ in templates(jobs)
        if jobs[at].get("replicas") != given[at].get("replicas")
    ]
    changed = {**jobset, "spec": {**spec, "replicatedJobs": jobs}} if patch else jobset
    return Injection(changed, patch)


@attrs.frozen
class _Group:
    """Properties that the supervisors of a JobSet share.

    Args:
        ranks: ranks of each ReplicatedJob that has any, by its index.
        ring: variables about heartbeats.
        has_spares: True if a Job of the JobSet has spares.
    """

    ranks: Mapping[int, worker_variables.Ranks] = attrs.field(factory=dict)
    ring: Mapping[str, str] = attrs.field(factory=dict)
    has_spares: bool = False


def _group_of(spec: Json, notes: Json, jobs: list[Any], problems: list[FieldError]) -> _Group:
    """Return what the supervisors share; errors are added to ``problems``."""
    ranks = worker_variables.ranks_of({**spec, "replicatedJobs": jobs}, notes, problems)
    found = [(jobs[at], pod) for at, _, pod in templates(jobs)]
    members = [job for job, pod in found if not runs_agent(pod)]
    ring = ring_variables(spec, notes, members, problems)
    return _Group(ranks, ring, any(any(spares_in(job, notes)) for job, _ in found))


def templates(jobs: Sequence[Any]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Iterate over ReplicatedJobs with pods: index, the Jobs' spec and the pods' spec, mutable.

    Unlike those of ``json_tree``, which returns a shared empty object for a missing one.
    """
    for at, job in enumerate(jobs):
        spec = job
        for name in ("template", "spec"):
            spec = spec.get(name) if isinstance(spec, dict) else None
        pod = spec
        for name in ("template", "spec"):
            pod = pod.get(name) if isinstance(pod, dict) else None
        if isinstance(spec, dict) and isinstance(pod, dict):
            yield at, spec, pod


def fill_job_fields(template: dict[str, Any]) -> None:
    """Fill in fields that a Job with restart in place needs and the user left open.

    ``backoffLimit: 0`` counts as open: other restart strategies use it so that a Job fails with its
    first pod and the JobSet restarts. Validation refuses other values, and differing counts.
    """
    if template.get("backoffLimit") in (None, 0):
        template["backoffLimit"] = keys.INT32_MAX
    if template.get("podReplacementPolicy") is None:
        template["podReplacementPolicy"] = "Failed"
    parallelism, completions = template.get("parallelism"), template.get("completions")
    if parallelism is None:
        template["parallelism"] = 1 if completions is None else completions
    if completions is None:
        template["completions"] = template["parallelism"]


def _add_spares(job: dict[str, Any], template: dict[str, Any], notes: Json) -> None:
    """Add the spares to the pods of each Job and to the Jobs, as all later readers count them.

    Queues and gangs that read the JobSet thus see the real number of pods.
    """
    spares = spares_in(job, notes)
    for field in ("parallelism", "completions"):
        if number(template, field):  # one of 0 stays: validation refuses it
            template[field] += spares.pods
    if spares.jobs and (replicas := replicas_of(job)):
        job["replicas"] = replicas + spares.jobs


def _strategy(spec: Json, name: str) -> Iterator[FieldError]:
    strategy = child(spec, "failurePolicy").get("restartStrategy")
    if strategy != keys.IN_PLACE_RESTART:
        why = (
            f"must be {keys.IN_PLACE_RESTART} with the annotation {name}: set it, or remove the "
            "annotation"
        )
        yield invalid("spec.failurePolicy.restartStrategy", strategy, why)


def _add_agent(
    mode: str,
    at: int,
    job: Json,
    template: dict[str, Any],
    notes: Json,
    agent: pods.AgentContainer,
    group: _Group,
) -> list[FieldError]:
    """Add the agent to the pods of the ReplicatedJob at an index; not to be used after an error."""
    path, ranks = f"spec.replicatedJobs[{at}].template.spec", group.ranks.get(at)
    if not agent.image:
        why = (
            "this cluster's JobSet manager has no agent image (its flag --agent-image): "
            "ask its operator, or write the agent into the pod template"
        )
        return [required(note_field(keys.IN_PLACE_AGENT_ANNOTATION), why)]
    pod, where = template["template"]["spec"], f"{path}.template.spec"
    options = read_options(notes, template, path, supervised=mode == SUPERVISOR, ranks=ranks)
    if not isinstance(options, Options):
        return options
    own = child(template, "template", "metadata", "annotations")
    agent = attrs.evolve(agent, settings=agent.settings.with_annotations(notes, own))
    problems = [*_clashes(pod, where, options), *_account(pod, where)]
    if mode == SIDECAR:
        pods.add_sidecar(pod, options, agent)
        return problems
    variables = dict(options.variables)
    for _, worker in _workers(pod, where, options) if group.has_spares else ():
        variables |= worker_variables.seat_variables(job, worker, notes, ranks)
    options = attrs.evolve(options, variables={**variables, **group.ring})
    problems += _unsupervisable(pod, where, options)
    if not problems:
        pods.add_supervisor(pod, options, agent)
    return problems


def _clashes(pod: Json, path: str, options: Options) -> Iterator[FieldError]:
    """Return errors for reserved names that the user's template already uses."""
    for kind in ("initContainers", "containers", *(("volumes",) if options.supervised else ())):
        for at, each in objects(pod, kind):
            if text(each, "name") == keys.AGENT_NAME:
                why = "is the name of the in-place restart agent: choose another one"
                yield invalid(f"{path}.{kind}[{at}].name", keys.AGENT_NAME, why)


def _workers(pod: Json, path: str, options: Options) -> list[tuple[str, Json]]:
    """Return the worker containers, each with its field path."""
    return [
        (f"{path}.containers[{at}]", container)
        for at, container in objects(pod, "containers")
        if at in options.workers
    ]


def _account(pod: Json, path: str) -> Iterator[FieldError]:
    if pod.get("automountServiceAccountToken") is False:
        why = (
            "the in-place restart agent watches its JobSet with the pod's own token: remove the "
            "field, and give the service account no more rights than config/agent/account has"
        )
        yield invalid(f"{path}.automountServiceAccountToken", False, why)


def _unsupervisable(pod: Json, path: str, options: Options) -> Iterator[FieldError]:
    """Return reasons why the worker cannot be the agent's child."""
    for where, container in _workers(pod, path, options):
        for field, why in obstacles(container):
            yield forbidden(f"{where}.{field}", f'{why}, or use "{SIDECAR}"')
    if options.end_codes_given and pod.get("restartPolicy") == "OnFailure":
        why = "exit codes can end the pod only with restartPolicy Never"
        yield invalid(f"{path}.restartPolicy", "OnFailure", why)
