"""Pod spec of the agent, in both of its modes.

The functions modify the given pod spec, a copy of the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.options import Options
from jobsetpy.reconcilers.rules.injected_containers import (
    RESTRICTED,
    ContainerDefaults,
    field_variables,
    pull_secrets,
    resources_for,
)
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, text

RESTART_EXIT_CODE = 42
"""Exit code for a restart in place, the agent's default (``jobsetpy.agent.protocol.settings``),
explicit for readers of the pod."""
HARMLESS_EXIT_CODES = (0, 1, 2)
"""Exit codes of the agent after which the kubelet restarts it alone, all of them before its worker
runs: stop signal, no port, wrong configuration. After any other end (out of memory, a crash) its
new run would join the next epoch while a worker of the old one runs, so all containers of the pod
are restarted."""
PROBE_WAIT_S = 25
"""Seconds for which the agent delays the answer to a probe of the closed barrier: the kubelet then
sees the lift immediately, and does not report a failed probe each second."""
_VOLUME_LIMIT = "128Mi"

_ROOTLESS_USER: dict[str, int] = {"runAsGroup": 65532, "runAsUser": 65532}
"""User of the agent in a pod whose own user is root, which ``runAsNonRoot`` refuses."""


@attrs.frozen(kw_only=True)
class AgentContainer:
    """Settings of the agent's container that do not depend on the pod.

    Args:
        image: image of the agent; "" if the manager has none.
        settings: resources and pull secret.
    """

    image: str
    settings: ContainerDefaults = attrs.field(factory=ContainerDefaults)


def add_sidecar(pod: dict[str, Any], options: Options, agent_container: AgentContainer) -> None:
    """Add the agent as a sidecar, and a restart rule to each worker.

    It is the last init container: the barrier then holds only the workers, and a pod reports its
    epoch when everything before them is done.
    """
    port = options.barrier_port
    agent = _container(pod, agent_container) | {
        "restartPolicy": "Always",
        "restartPolicyRules": [_restart_all("NotIn", HARMLESS_EXIT_CODES)],
        "ports": [{"containerPort": port, "name": "jobset-barrier", "protocol": "TCP"}],
        "startupProbe": {
            "httpGet": {"path": f"/barrier-is-lifted?wait={PROBE_WAIT_S}", "port": port},
            "periodSeconds": 1,
            "timeoutSeconds": PROBE_WAIT_S + 5,
            "failureThreshold": keys.INT32_MAX,
        },
        "env": [
            *_identity(),
            {"name": "RESTART_POD_IN_PLACE_EXIT_CODE", "value": str(RESTART_EXIT_CODE)},
            {"name": "BARRIER_PORT", "value": str(port)},
        ],
    }
    _pod_fields(pod, agent_container.settings)
    pod["initContainers"] = [*items(pod, "initContainers"), agent]
    for at, worker in objects(pod, "containers"):
        if at in options.workers and not items(worker, "restartPolicyRules"):
            assert isinstance(worker, dict), "the pod is a copy that may be changed"
            if worker.get("restartPolicy") is None:
                worker["restartPolicy"] = "Never"
            worker["restartPolicyRules"] = [_restart_all("NotIn", (0, *options.end_codes))]


def add_supervisor(pod: dict[str, Any], options: Options, agent_container: AgentContainer) -> None:
    """Have the agent copied into a volume, and run the worker's command with it.

    The agent's variables have a prefix and are removed from the worker's environment, which is
    therefore the user's.
    """
    mount = {"name": keys.AGENT_NAME, "mountPath": keys.AGENT_FOLDER}
    install = _container(pod, agent_container) | {
        "args": ["install", keys.AGENT_FOLDER],
        "volumeMounts": [mount],
    }
    _pod_fields(pod, agent_container.settings)
    pod["initContainers"] = [*items(pod, "initContainers"), install]
    volume = {"name": keys.AGENT_NAME, "emptyDir": {"sizeLimit": _VOLUME_LIMIT}}
    pod["volumes"] = [*items(pod, "volumes"), volume]
    for at, worker in objects(pod, "containers"):
        if at not in options.workers:
            continue
        assert isinstance(worker, dict), "the pod is a copy that may be changed"
        worker["command"] = [keys.AGENT_PROGRAM, *items(worker, "command")]
        worker["env"] = [*items(worker, "env"), *_supervisor_variables(worker, options)]
        worker["volumeMounts"] = [*items(worker, "volumeMounts"), {**mount, "readOnly": True}]


def _supervisor_variables(worker: Json, options: Options) -> list[dict[str, Any]]:
    codes = ",".join(map(str, options.end_codes))
    # The signal that the kubelet sends in place of SIGTERM (Kubernetes 1.33 and later).
    stop_signal = text(child(worker, "lifecycle"), "stopSignal")
    values = {
        "END_POD_EXIT_CODES": codes,
        "WORKER_STOP_SIGNAL": stop_signal,
        **options.variables,
        "AGENT_LOG": "problems",  # standard error is the worker's
    }
    seated, ranked = "WORKER_SEATS" in values, "WORKER_PROCESSES" in values
    fields = {
        **(_RANKED if ranked or seated else {}),
        **(_SEATED if seated else {}),
        **(_IN_RING if "HEARTBEAT_SECONDS" in values else {}),
    }
    return [
        *_identity(keys.AGENT_VARIABLE_PREFIX, fields),
        *(
            {"name": f"{keys.AGENT_VARIABLE_PREFIX}{name}", "value": value}
            for name, value in values.items()
            if value
        ),
    ]


def _container(pod: Json, agent: AgentContainer) -> dict[str, Any]:
    return {
        "name": keys.AGENT_NAME,
        "image": agent.image,
        # The default for the tag `latest` would query the registry at each start of each pod.
        "imagePullPolicy": "IfNotPresent",
        **resources_for(pod, agent.settings),
        "securityContext": _security(pod),
    }


def _security(pod: Json) -> dict[str, Any]:
    """Return the agent's security context; its user is the pod's, or else that of its image.

    A platform may allow a namespace only users of a range (OpenShift does), and assigns one to
    containers that state none. The image's user is a number, which the kubelet requires here.
    """
    root = child(pod, "securityContext").get("runAsUser") == 0
    return {**RESTRICTED, **(_ROOTLESS_USER if root else {})}


def _pod_fields(pod: dict[str, Any], settings: ContainerDefaults) -> None:
    if not pod.get("restartPolicy"):
        pod["restartPolicy"] = "Never"
    if not text(pod, "serviceAccountName") and not text(pod, "serviceAccount"):
        pod["serviceAccountName"] = keys.AGENT_NAME
    if pod.get("automountServiceAccountToken") is None:
        pod["automountServiceAccountToken"] = True  # the account's own setting may be false
    secrets = pull_secrets(pod, settings.pull_secret)
    if secrets:
        pod["imagePullSecrets"] = secrets


def _restart_all(operator: str, codes: tuple[int, ...]) -> dict[str, Any]:
    return {
        "action": "RestartAllContainers",
        "exitCodes": {"operator": operator, "values": list(codes)},
    }


_RANKED = {
    "WORKER_JOB_INDEX": f"metadata.annotations['{keys.JOB_INDEX}']",
    "WORKER_POD_INDEX": f"metadata.annotations['{keys.COMPLETION_INDEX_ANNOTATION}']",
}
"""Variables that distinguish a pod's ranks from another's."""


_SEATED = {
    "POD_UID": "metadata.uid",
    "WORKER_JOB": "metadata.labels['batch.kubernetes.io/job-name']",
}
"""Variables by which a pod finds its seat."""


_IN_RING = {
    "NODE_NAME": "spec.nodeName",
    "WORKER_JOB": _SEATED["WORKER_JOB"],
    "WORKER_POD_INDEX": _RANKED["WORKER_POD_INDEX"],
}
"""Variables by which a pod finds its place in the ring of heartbeats."""


def _identity(prefix: str = "", more: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the agent's variables about its pod and JobSet, from the downward API."""
    fields = {
        "NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
        "JOBSET_NAME": f"metadata.annotations['{keys.JOBSET_NAME}']",
        "JOBSET_UID": f"metadata.annotations['{keys.JOBSET_UID}']",
        **(more or {}),
    }
    return field_variables(fields, prefix)
