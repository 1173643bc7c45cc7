"""Settings of a JobSet that it does not state itself: by a word, its namespace or the cluster.

Admission writes them into the annotations of a new JobSet, so that all later readers agree, and the
source of each into one more annotation. A single annotation takes precedence over the word, and the
JobSet over its namespace, which takes precedence over the manager's configuration. A default is
left out where it would have no effect. What the configuration enforces cannot be contradicted: such
a JobSet is refused rather than changed, since one that differs from its manifest surprises its user
and the tool that applies it again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import PREFIX, SETTINGS, Level, read
from jobsetpy.api.python_command import split_python
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place, runs_agent
from jobsetpy.reconcilers.rules.annotations import holders, idle_reason, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    Patch,
    child,
    containers,
    job_spec,
    number,
    objects,
    pod_notes,
    pod_spec,
    text,
    texts,
)
from jobsetpy.reconcilers.rules.spares import spares_in

WORD: Final = keys.IN_PLACE_RESTART_ANNOTATION
FAST: Final = "fast"
MAX_RESTARTS: Final = 100
"""``maxRestarts`` of a JobSet with the word that states none."""
NAMESPACE, CLUSTER, ENFORCED = "namespace", "cluster", "enforced"
DEFAULTABLE: Final = frozenset(
    name for name, row in SETTINGS.items() if Level.JOBSET in row.levels
) - {keys.RESTART_IN_PLACE_ANNOTATION, keys.SETTINGS_FROM_ANNOTATION}
"""Annotations that a namespace and the configuration may set."""
_IN_PLACE_ONLY: Final = (keys.AFTER_SUCCESS_ANNOTATION, keys.MAX_WITHOUT_PROGRESS_ANNOTATION)


@attrs.frozen
class ClusterDefaults:
    """Annotations by the manager's configuration.

    Args:
        defaults: values for JobSets that do not state them.
        enforced: values that a JobSet cannot contradict.
    """

    defaults: Mapping[str, str] = attrs.field(factory=dict)
    enforced: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ClusterDefaults:
        """Return the defaults by the field ``inPlaceRestart.defaults`` of the configuration."""
        defaults = {name: value for name, value in given.items() if name != ENFORCED}
        return cls(defaults, given.get(ENFORCED, {}))


@attrs.frozen
class Filled:
    """A JobSet with all settings that apply to it.

    Args:
        jobset: the JobSet with them.
        patch: the additions as a JSON patch; empty if there are none.
        sources: source of each added annotation.
        problems: contradictions for which it must be refused; then nothing was added.
        warnings: annotations of the namespace that are ignored.
    """

    jobset: Json
    patch: Patch = attrs.field(factory=list)
    sources: Mapping[str, str] = attrs.field(factory=dict)
    problems: list[FieldError] = attrs.field(factory=list)
    warnings: list[FieldWarning] = attrs.field(factory=list)


def expand(word: object, spec: Json, notes: Json) -> dict[str, str]:
    """Return the settings that a word stands for, for a JobSet with these annotations.

    A setting that could not work is left out: modules are imported in advance only if all workers
    are Python programs, and heartbeats are sent only if a spare can take over from a silent pod.
    """
    if word != FAST:
        return {}
    found = {
        keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
        keys.IN_PLACE_HANG_ANNOTATION: "auto",
        keys.PROGRESS_PATTERN_ANNOTATION: "auto",
    }
    jobs = [job for _, job in objects(spec, "replicatedJobs")]
    without_agent = [job for job in jobs if not runs_agent(pod_spec(job))]
    # No job is left in a restored JobSet: its manifest has the agents that admission had added.
    if without_agent and all(_is_python(job, notes) for job in without_agent):
        found[keys.IN_PLACE_PRELOAD_ANNOTATION] = "auto"
    if any(any(spares_in(job, notes)) for job in jobs) and _has_ring(spec):
        found[keys.IN_PLACE_HEARTBEAT_ANNOTATION] = "auto"
    return found


def fill(jobset: Json, namespace: Json, cluster: ClusterDefaults) -> Filled:
    """Return a new JobSet with the settings that it does not state.

    Args:
        jobset: the JobSet, before injection.
        namespace: annotations of its namespace.
        cluster: annotations by the manager's configuration.
    """
    spec, own = child(jobset, "spec"), child(jobset, "metadata", "annotations")
    own = {name: value for name, value in own.items() if name != keys.SETTINGS_FROM_ANNOTATION}
    if problems := contradictions(jobset, cluster.enforced):
        return Filled(jobset, problems=problems)
    given, warned = _of_namespace(namespace)
    sources: dict[str, str] = {}
    found: dict[str, Any] = {}
    layers = ((CLUSTER, cluster.defaults), (NAMESPACE, given), (ENFORCED, cluster.enforced))
    for source, notes in layers:
        found |= notes
        sources |= dict.fromkeys(notes, source)
    # A default says how to restart in place, not that a JobSet should.
    pods = [pod_spec(job) for _, job in objects(spec, "replicatedJobs")]
    wanted = restarts_in_place(spec) and own.get(WORD) != "off" and not all(map(runs_agent, pods))
    if not wanted and own.get(WORD) != FAST:
        found.pop(WORD, None)
        found.pop(keys.IN_PLACE_AGENT_ANNOTATION, None)
    word = {**found, **own}.get(WORD)
    meant = expand(word, spec, {**found, **own})
    sources |= {name: str(word) for name in meant if name not in found}
    whole = {**meant, **found, **own}
    while idle := [name for name in whole if name not in own and idles(name, whole, spec)]:
        for name in idle:
            del whole[name]
    added = {name: sources[name] for name in whole if name not in own}
    if added:
        whole[keys.SETTINGS_FROM_ANNOTATION] = _written(added)
    policy = _policy(child(spec, "failurePolicy")) if whole.get(WORD) == FAST else None
    return attrs.evolve(_changed(jobset, whole, policy), sources=added, warnings=warned)


def refill(old: Json, new: Json) -> Filled:
    """Return ``new`` with the settings that admission added to ``old``, where it leaves them out.

    A manifest that is applied again does not have them, although its user did not remove them.

    Args:
        old: the stored JobSet.
        new: the JobSet that replaces it.
    """
    before, own = (child(each, "metadata", "annotations") for each in (old, new))
    sources = sources_of(before)
    whole = {name: before[name] for name in sources if name in before} | dict(own)
    kept = {name: each for name, each in sources.items() if whole.get(name) == before.get(name)}
    whole.pop(keys.SETTINGS_FROM_ANNOTATION, None)
    if kept:
        whole[keys.SETTINGS_FROM_ANNOTATION] = _written(kept)
    policy = None
    if before.get(WORD) == FAST == whole.get(WORD) and restarts_in_place(child(old, "spec")):
        most = number(child(old, "spec", "failurePolicy"), "maxRestarts")
        policy = _policy(child(new, "spec", "failurePolicy"), most or 0)
    return _changed(new, whole, policy)


def sources_of(notes: Json) -> dict[str, str]:
    """Return the source of each annotation that admission has added to a JobSet."""
    found = {}
    for part in text(notes, keys.SETTINGS_FROM_ANNOTATION).split():
        source, _, names = part.partition("=")
        found.update(dict.fromkeys((f"{PREFIX}{name}" for name in names.split(",")), source))
    known = (FAST, NAMESPACE, CLUSTER, ENFORCED)  # a user may write anything
    return {name: each for name, each in found.items() if name in DEFAULTABLE and each in known}


def with_sources(jobset: Json, problems: Sequence[FieldError]) -> list[FieldError]:
    """Return errors that say who has set an annotation which the user did not write."""
    notes = child(jobset, "metadata", "annotations")
    clauses = {note_field(name): f" (set by: {each})" for name, each in sources_of(notes).items()}
    return [
        attrs.evolve(each, message=f"{each.message}{clauses.get(each.field, '')}")
        for each in problems
    ]


def _written(sources: Mapping[str, str]) -> str:
    by_source: dict[str, list[str]] = {}
    for name, source in sources.items():
        by_source.setdefault(source, []).append(name.removeprefix(PREFIX))
    return " ".join(f"{source}={','.join(names)}" for source, names in by_source.items())


def _changed(jobset: Json, notes: Json, policy: Json | None) -> Filled:
    """Return a JobSet with other annotations, and another failure policy unless ``None``."""
    patch: Patch = []
    if notes != child(jobset, "metadata", "annotations"):
        patch.append({"op": "add", "path": "/metadata/annotations", "value": dict(notes)})
        jobset = {**jobset, "metadata": {**child(jobset, "metadata"), "annotations": dict(notes)}}
    if policy is not None and policy != child(jobset, "spec", "failurePolicy"):
        patch.append({"op": "add", "path": "/spec/failurePolicy", "value": policy})
        jobset = {**jobset, "spec": {**child(jobset, "spec"), "failurePolicy": policy}}
    return Filled(jobset, patch)


def _policy(given: Json, max_restarts: int = MAX_RESTARTS) -> Json:
    """Return the failure policy of a JobSet with the word.

    ``Recreate`` counts as not stated, since the CRD's default cannot be told from it.
    """
    if text(given, "restartStrategy") not in ("", keys.RECREATE, keys.IN_PLACE_RESTART):
        return given
    return {"maxRestarts": max_restarts, **given, "restartStrategy": keys.IN_PLACE_RESTART}


def contradictions(
    jobset: Json, enforced: Mapping[str, str], old: Json | None = None
) -> list[FieldError]:
    """Return errors for annotations with another value than the enforced one.

    Args:
        jobset: the JobSet.
        enforced: values by the manager's configuration.
        old: the stored JobSet, if there is one: what it has already is accepted.
    """
    before = {} if old is None else {each.path: each.notes for each in holders(old)}
    return [
        invalid(
            note_field(name, holder.path),
            holder.notes[name],
            f'this cluster enforces "{value}" (inPlaceRestart.defaults.enforced in the '
            "configuration of the manager): remove the annotation",
        )
        for holder in holders(jobset)
        for name, value in enforced.items()
        if name in holder.notes
        and holder.notes[name] != value
        and holder.notes[name] != before.get(holder.path, {}).get(name)
    ]


def _of_namespace(notes: Json) -> tuple[dict[str, Any], list[FieldWarning]]:
    """Return the valid settings of a namespace, and warnings about the other ones."""
    found, warned = {}, []
    for name, value in notes.items():
        if not name.startswith(PREFIX) and name not in SETTINGS:
            continue
        if why := default_problem(name, value):
            warned.append(FieldWarning(f"the namespace's {note_field(name)}", f"ignored: {why}"))
        else:
            found[name] = value
    return found, warned


def default_problem(name: str, value: object) -> str:
    """Return why an annotation cannot be the default of a namespace or cluster; "" if it can."""
    if why := idle_reason(name, Level.JOBSET):
        return why
    if name not in DEFAULTABLE:
        return "is a request to one JobSet, and can be no default"
    return SETTINGS[name].problem(value)


def idles(name: str, whole: Json, spec: Json) -> bool:
    """Return True for a default that would have no effect on a JobSet, or be refused."""
    row, mode = SETTINGS[name], whole.get(keys.IN_PLACE_AGENT_ANNOTATION)
    in_place = restarts_in_place(spec) or whole.get(WORD) == FAST
    if row.agent:
        served = mode == "supervisor" or (mode is not None and not row.supervisor)
        if not served or (name == keys.IN_PLACE_BARRIER_PORT_ANNOTATION and mode != "sidecar"):
            return True
    if row.needs and not any(whole.get(each) not in (None, "off") for each in row.needs):
        return True
    if name == keys.IN_PLACE_HEARTBEAT_ANNOTATION:
        return not _has_ring(spec)
    if name in (keys.PROGRESS_PATTERN_ANNOTATION, keys.LOG_RULES_ANNOTATION):
        jobs = [job for _, job in objects(spec, "replicatedJobs")]
        return any(each.get("tty") is True for job in jobs for each in containers(pod_spec(job)))
    if name == keys.MAX_WITHOUT_PROGRESS_ANNOTATION and mode != "supervisor":
        return True
    return name in _IN_PLACE_ONLY and not in_place


def _has_ring(spec: Json) -> bool:
    """Return True if agents can find each other by the names of their pods."""
    named = child(spec, "network").get("enableDNSHostnames") is not False
    return named and all(
        job_spec(job).get("completionMode") in (None, "Indexed")
        for _, job in objects(spec, "replicatedJobs")
    )


def _is_python(job: Json, notes: Json) -> bool:
    """Return True if a ReplicatedJob's worker is a Python program."""
    name = read(keys.IN_PLACE_CONTAINER_ANNOTATION, pod_notes(job), notes)
    given = [each for _, each in objects(pod_spec(job), "containers")]
    workers = [each for each in given if len(given) == 1 or text(each, "name") == name]
    words = [[*texts(each, "command"), *texts(each, "args")] for each in workers]
    return all(each and not isinstance(split_python(each), str) for each in words)
