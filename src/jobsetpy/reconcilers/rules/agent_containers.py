"""Detection of agents for restart in place among the containers of a pod spec.

A rule ``RestartAllContainers`` alone is no proof: any sidecar may have one. An agent is recognized
by its required variables in addition to such a rule; by its startup probe on the barrier; by its
image; or by the name that injection gives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, text, texts

RESTART_ALL_ACTIONS = frozenset({"RestartPod", "RestartAllContainers"})
"""Names of the kubelet's action: that of its KEP and the released one."""

VARIABLES = frozenset({"NAMESPACE", "POD_NAME", "JOBSET_NAME"})
"""Required variables of an agent."""

BARRIER_PATH = "/barrier-is-lifted"
GO_BARRIER_PATH = "/barrier-is-down"
GO_VARIABLES = frozenset({"POD_NAME", "JOBSET_NAME", "WORKER_COMMAND"})
"""Marks of the Go project's agents: the path of the sidecar, the variables of the other mode."""

IMAGE = "jobsetpy-agent"
"""Last part of the agent image's name."""

Container = tuple[int, Json]
"""Container with its index."""


def restarts_in_place(spec: Json) -> bool:
    """Return True if a JobSet's spec requests restart in place."""
    return text(child(spec, "failurePolicy"), "restartStrategy") == keys.IN_PLACE_RESTART


def jobs_in_place(spec: Json, features: Features) -> Iterator[tuple[str, Json]]:
    """Yield path and ReplicatedJobs of a JobSet's spec, if they restart in place."""
    if features.in_place_restart and restarts_in_place(spec):
        for at, job in objects(spec, "replicatedJobs"):
            yield f"spec.replicatedJobs[{at}]", job


def restart_action(container: Json, exit_code: int) -> str:
    """Return the action of a container's first restart rule that matches the code, or ""."""
    for _, rule in objects(container, "restartPolicyRules"):
        if has_code(child(rule, "exitCodes"), exit_code):
            return text(rule, "action")
    return ""


def has_code(codes: Json, exit_code: int) -> bool:
    """Return True if a rule's condition on exit codes is met."""
    among, operator = exit_code in items(codes, "values"), codes.get("operator")
    return among if operator == "In" else operator == "NotIn" and not among


def sidecars(pod: Json) -> list[Container]:
    """Return the sidecars that are agents."""
    return [each for each in _staying(pod) if _is_agent(each[1])]


def restarting_sidecars(pod: Json) -> list[Container]:
    """Return the sidecars with a rule that restarts all containers, agents or not."""
    return [each for each in _staying(pod) if _has_restart_rule(each[1])]


def strangers(pod: Json) -> list[Container]:
    """Return the sidecars without any mark of an agent, not even its variables."""
    return [
        each
        for each in _staying(pod)
        if not (_has_restart_rule(each[1]) or _is_agent(each[1]) or _is_named_like(each[1]))
    ]


def supervised(pod: Json) -> list[Container]:
    """Return the containers whose first process is an agent that runs the worker's command."""
    return [
        (at, container) for at, container in objects(pod, "containers") if _starts_agent(container)
    ]


def named_like_supervised(pod: Json) -> list[Container]:
    """Return the containers with a supervisor's variables, which a worker may have as well.

    They may still run an agent, started by a script or by the image's entry point.
    """
    return [each for each in objects(pod, "containers") if _is_named_like(each[1])]


def runs_agent(pod: Json) -> bool:
    """Return True if this pod spec certainly has an agent, added by a user or by a manager."""
    return bool(sidecars(pod) or supervised(pod))


def _staying(pod: Json) -> list[Container]:
    inits = objects(pod, "initContainers")
    return [each for each in inits if text(each[1], "restartPolicy") == "Always"]


def _has_restart_rule(container: Json) -> bool:
    return any(
        text(rule, "action") in RESTART_ALL_ACTIONS
        for _, rule in objects(container, "restartPolicyRules")
    )


def _is_agent(container: Json) -> bool:
    image = text(container, "image").partition("@")[0].rpartition("/")[2].partition(":")[0]
    barrier = _barrier(container)
    return (
        text(container, "name") == keys.AGENT_NAME
        or image == IMAGE
        or barrier in {BARRIER_PATH, GO_BARRIER_PATH}
        or (_has_variables(container, VARIABLES) and _has_restart_rule(container))
    )


def _is_named_like(container: Json) -> bool:
    return _has_variables(container, VARIABLES - {"NAMESPACE"})


def _barrier(container: Json) -> str:
    return text(child(container, "startupProbe", "httpGet"), "path").partition("?")[0]


def is_go_sidecar(container: Json) -> bool:
    """Return True if an agent is the Go project's, by its barrier."""
    return _barrier(container) == GO_BARRIER_PATH


def _has_variables(container: Json, wanted: AbstractSet[str]) -> bool:
    names = (text(variable, "name") for _, variable in objects(container, "env"))
    return wanted <= {name.removeprefix(keys.AGENT_VARIABLE_PREFIX) for name in names}


def _starts_agent(container: Json) -> bool:
    """Return True if it runs the launcher, the module, or a program in the agent's folder."""
    command, arguments = texts(container, "command"), texts(container, "args")
    program = [*command, *arguments][:1]
    return (
        any(word.rpartition("/")[2] == "supervise" for word in program)
        or "jobsetpy.agent" in command
        or any(f"{keys.AGENT_FOLDER}/" in word for word in (*command, *arguments))
        or _has_variables(container, GO_VARIABLES)
    )


def obstacles(container: Json) -> Iterator[tuple[str, str]]:
    """Yield fields of a container that keep the agent from running its command, with reasons."""
    if not items(container, "command"):
        why = "the agent runs the command, and the entry point of an image cannot be known"
        yield "command", f"{why}: write the command out"
    for probe in ("livenessProbe", "startupProbe"):
        if container.get(probe) is not None:
            why = "the kubelet would end the container while its group waits for all workers"
            yield probe, f"{why}: remove the probe"
    for nth, mount in objects(container, "volumeMounts"):
        if text(mount, "mountPath").rstrip("/") == keys.AGENT_FOLDER:
            yield f"volumeMounts[{nth}].mountPath", "is where the agent is mounted: choose another"
    for nth, variable in objects(container, "env"):
        if text(variable, "name").startswith(keys.AGENT_VARIABLE_PREFIX):
            why = f"variables that begin with {keys.AGENT_VARIABLE_PREFIX} are the agent's own"
            yield f"env[{nth}].name", f"{why}: choose another name"
