"""Validation of the agents in a new JobSet's pods, for restart in place.

Templates that cannot work in any cluster are refused; doubtful ones cause a warning. Updates are
not checked: templates do not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.pods import (
    HARMLESS_EXIT_CODES,
    RESTART_EXIT_CODE,
)
from jobsetpy.reconcilers.restart_in_place.validation.sidecar_pods import sidecar_pod_warnings
from jobsetpy.reconcilers.rules.agent_containers import (
    RESTART_ALL_ACTIONS,
    Container,
    has_code,
    is_go_sidecar,
    jobs_in_place,
    named_like_supervised,
    restart_action,
    restarting_sidecars,
    runs_agent,
    sidecars,
    supervised,
)
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, objects, pod_spec, text

KILLED = 137
"""Exit code of a container that is out of memory."""

EXIT_CODE_VARIABLE = "RESTART_POD_IN_PLACE_EXIT_CODE"
GO_EXIT_CODE_VARIABLE, GO_EXIT_CODE = "IN_PLACE_RESTART_EXIT_CODE", 1
ADVICE = f"RestartAllContainers, NotIn {list(HARMLESS_EXIT_CODES)}"
"""Recommended rule of an agent."""


def has_agent(pod: Json) -> bool:
    """Return True if pods of this spec may run an agent for restart in place.

    That includes possible agents: a sidecar that has the rule, a container that has the variables.
    """
    return bool(restarting_sidecars(pod) or supervised(pod) or named_like_supervised(pod))


def agent_problems(pod: Json, path: str, prefix: str) -> list[FieldError]:
    """Return reasons why pods of this spec can never be restarted in place.

    Args:
        pod: the pod's spec.
        path: its field path.
        prefix: name of the ReplicatedJob, for messages.
    """
    problems = [*_impossible_rules(pod, path), *_unruled_exit_codes(pod, path, prefix)]
    if has_agent(pod) or problems:
        return problems
    why = (
        f"{prefix} no agent: restartStrategy {keys.IN_PLACE_RESTART} needs an init "
        "container with restartPolicy Always and a RestartAllContainers rule, or a "
        "container that runs the agent as its supervisor (with the variables "
        "JOBSET_NAME and POD_NAME)"
    )
    return [invalid(f"{path}.initContainers", None, why)]


def warnings(jobset: Json, features: Features) -> list[FieldWarning]:
    """Return warnings about a new JobSet that is accepted."""
    jobs = jobs_in_place(child(jobset, "spec"), features)
    return [warning for path, job in jobs for warning in _warnings(job, f"{path}.template.spec")]


def accounts(jobset: Json) -> dict[str, str]:
    """Return the service accounts of pods with an injected agent, each with its first field."""
    if keys.IN_PLACE_AGENT_ANNOTATION not in child(jobset, "metadata", "annotations"):
        return {}
    found: dict[str, str] = {}
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        pod = pod_spec(job)
        name = text(pod, "serviceAccountName") or text(pod, "serviceAccount") or "default"
        path = f"spec.replicatedJobs[{at}].template.spec.template.spec.serviceAccountName"
        if runs_agent(pod):
            found.setdefault(name, path)
    return found


def missing_account(name: str, field: str, namespace: str) -> FieldError:
    """Return the error for a service account that does not exist: no pod would be created."""
    why = f"this service account, which agents need, does not exist in namespace {namespace}: "
    why += (
        f"kubectl apply -n {namespace} -k config/agent/account (or agent.namespaces of the chart)"
        if name == keys.AGENT_NAME
        else "create it, with the rights of config/agent/account"
    )
    return invalid(field, name, why)


def restart_all_rules(jobset: Json, features: Features) -> list[str]:
    """Return the fields of a JobSet's rules that restart all containers of a pod in place."""
    return [
        f"{field}.action"
        for path, job in jobs_in_place(child(jobset, "spec"), features)
        for field, rule in _rules(pod_spec(job), f"{path}.template.spec.template.spec")
        if text(rule, "action") == "RestartAllContainers"
    ]


def undeclared_warning(field: str, nodes: int) -> FieldWarning:
    """Return the warning about such a rule where no kubelet declares that it supports it.

    Args:
        field: field of the rule's action.
        nodes: number of nodes.
    """
    why = (
        f"none of {nodes} nodes declares the feature {keys.RESTART_ALL_FEATURE}, so pods wait for "
        "one that does (kubelets of 1.36, or of 1.35 with that gate): "
        "use agents in the mode supervisor, or a later release"
    )
    return FieldWarning(field, why)


def _warnings(job: Json, where: str) -> Iterator[FieldWarning]:
    pod, path = pod_spec(job), f"{where}.template.spec"
    yield from _unreleased_actions(pod, path)
    for at, agent in _ruled_agents(pod):
        field = f"{path}.initContainers[{at}]"
        if agent.get("startupProbe") is None:
            why = "the agent has none, so workers start without waiting for their group"
            yield FieldWarning(f"{field}.startupProbe", why)
        if not _restarts_all(agent, KILLED):
            why = f"a killed agent ({KILLED}) comes back alone next to its old worker: use {ADVICE}"
            yield FieldWarning(f"{field}.restartPolicyRules", why)
        yield from _policies_that_see_the_agent(job_spec(job), where, agent)
    if _ruled_agents(pod):
        yield from _liveness_probes(pod, path)
        yield from sidecar_pod_warnings(child(job_spec(job), "template"), f"{where}.template")


def _liveness_probes(pod: Json, path: str) -> Iterator[FieldWarning]:
    """Return warnings about liveness probes: a worker that they end may count as complete."""
    for at, container in objects(pod, "containers"):
        ends = text(container, "restartPolicy") or text(pod, "restartPolicy") or "Always"
        restarts = ends == "Always" or restart_action(container, 0) in RESTART_ALL_ACTIONS
        if container.get("livenessProbe") is not None and not restarts:
            yield FieldWarning(
                f"{path}.containers[{at}].livenessProbe",
                "a worker that exits with 0 because this probe failed counts as complete: have it "
                "exit with another code after SIGTERM, such as 143, or use the mode supervisor",
            )


def _unruled_exit_codes(pod: Json, path: str, prefix: str) -> Iterator[FieldError]:
    """Return errors for agents without a rule for their exit code: they would restart alone."""
    if supervised(pod):
        return  # another container with an agent's variables is not the agent
    for at, agent in sidecars(pod):
        code = _restart_code(agent)
        if not has_agent(pod):
            why = f"{prefix} the agent needs a rule that restarts its pod: {ADVICE}"
        elif code is not None and not _restarts_all(agent, code):
            why = (
                f"{prefix} none restarts the pod when the agent ends with {code} "
                f"({_code_variable(agent)}): use {ADVICE}"
            )
        else:
            continue
        field = f"{path}.initContainers[{at}].restartPolicyRules"
        yield invalid(field, agent.get("restartPolicyRules"), why)


def _ruled_agents(pod: Json) -> list[Container]:
    """Return the sidecar that is the agent; not another one with the same variables."""
    known = sidecars(pod)
    return [] if supervised(pod) else [each for each in restarting_sidecars(pod) if each in known]


def _impossible_rules(pod: Json, path: str) -> Iterator[FieldError]:
    """Return errors for rules with values of KEP-467 that no Kubernetes release accepts.

    ``RestartPod``, which has a released name, is accepted with a warning.
    """
    for field, rule in _rules(pod, path):
        if text(rule, "action") == "Terminate":
            why = (
                "Kubernetes has no such action: remove the rule; a container whose exit code no "
                "rule matches follows its restartPolicy, and Never ends it"
            )
            yield invalid(f"{field}.action", "Terminate", why)
        operator = text(child(rule, "exitCodes"), "operator")
        if operator == "NoIn":
            why = "Kubernetes has no such operator: use NotIn"
            yield invalid(f"{field}.exitCodes.operator", operator, why)


def _unreleased_actions(pod: Json, path: str) -> Iterator[FieldWarning]:
    for field, rule in _rules(pod, path):
        if text(rule, "action") == "RestartPod":
            why = "no Kubernetes release takes pods with RestartPod: use RestartAllContainers"
            yield FieldWarning(f"{field}.action", why)


def _policies_that_see_the_agent(template: Json, where: str, agent: Json) -> Iterator[FieldWarning]:
    """Return warnings about pod failure policy rules that match the agent's exit.

    When its pod ends the agent gets a stop signal, and once its worker has run its code is not 0.
    """
    code = _restart_code(agent) or (GO_EXIT_CODE if is_go_sidecar(agent) else RESTART_EXIT_CODE)
    for at, rule in objects(child(template, "podFailurePolicy"), "rules"):
        codes = child(rule, "onExitCodes")
        if not text(codes, "containerName") and has_code(codes, code):
            yield FieldWarning(
                f"{where}.podFailurePolicy.rules[{at}].onExitCodes.containerName",
                f"without it the agent's exit code {code} counts as well: name the worker",
            )


def _rules(pod: Json, path: str) -> Iterator[tuple[str, Json]]:
    for kind in ("initContainers", "containers"):
        for at, container in objects(pod, kind):
            for nth, rule in objects(container, "restartPolicyRules"):
                yield f"{path}.{kind}[{at}].restartPolicyRules[{nth}]", rule


def _restarts_all(container: Json, code: int) -> bool:
    """Return True if the first matching rule restarts the pod in place for this exit code."""
    return restart_action(container, code) in RESTART_ALL_ACTIONS


def _code_variable(agent: Json) -> str:
    return GO_EXIT_CODE_VARIABLE if is_go_sidecar(agent) else EXIT_CODE_VARIABLE


def _restart_code(agent: Json) -> int | None:
    """Return the exit code by which the agent requests a restart, if the template contains it."""
    name = _code_variable(agent)
    for _, variable in objects(agent, "env"):
        value = text(variable, "value")
        if text(variable, "name") == name and value.isdecimal() and value.isascii():
            return int(value[:10])
    return None
