"""Forms in which users write parts of a JobSet, and in which typed Go clients write them back.

Each entry puts a value at a place in a small JobSet. ``back`` is the value that such a client writes;
``None`` stands for no field.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from support.admission.validation_kit import jobset, rjob

JOB = ("spec", "replicatedJobs", 0, "template")
POD = (*JOB, "spec", "template")
SPEC = (*POD, "spec")
CONTAINER = (*SPEC, "containers", 0)
CLAIMS = ("spec", "volumeClaimPolicies")


class Form(NamedTuple):
    """A form: its place, the value of the user, and the value of a typed client."""

    name: str
    path: tuple[str | int, ...]
    written: Any
    back: Any


def _all() -> Iterator[Form]:
    for field in ("tty", "stdin", "stdinOnce"):
        yield Form(f"{field}: false", (*CONTAINER, field), False, None)
    for field in ("workingDir", "terminationMessagePath", "terminationMessagePolicy"):
        yield Form(f"{field} empty", (*CONTAINER, field), "", None)
    yield Form("imagePullPolicy empty", (*CONTAINER, "imagePullPolicy"), "", None)
    for field in ("command", "args", "env", "envFrom", "ports", "volumeMounts", "resizePolicy"):
        yield Form(f"{field} empty", (*CONTAINER, field), [], None)
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        yield Form(f"{field}: false", (*SPEC, field), False, None)
    for field in ("tolerations", "volumes", "imagePullSecrets", "hostAliases", "schedulingGates"):
        yield Form(f"{field} empty", (*SPEC, field), [], None)
    for field in ("subdomain", "hostname", "nodeName", "priorityClassName", "serviceAccountName"):
        yield Form(f"{field} empty", (*SPEC, field), "", None)
    yield Form("dnsPolicy empty", (*SPEC, "dnsPolicy"), "", None)
    yield Form("schedulerName empty", (*SPEC, "schedulerName"), "", None)
    yield Form("nodeSelector empty", (*SPEC, "nodeSelector"), {}, None)
    yield Form("overhead empty", (*SPEC, "overhead"), {}, None)
    yield Form("resources empty", (*CONTAINER, "resources"), {}, {})
    yield Form("resources appear", (*CONTAINER, "resources"), None, {})
    yield Form("no limits", (*CONTAINER, "resources"), {"limits": {}}, {})
    yield Form("pod metadata appears", (*POD, "metadata"), None, {"creationTimestamp": None})
    yield Form("pod labels empty", (*POD, "metadata"), {"labels": {}}, {})
    yield Form("job metadata appears", (*JOB, "metadata"), None, {})
    yield Form("job annotations empty", (*JOB, "metadata"), {"annotations": {}}, {})
    env = (*CONTAINER, "env")
    yield Form("env without value", env, [{"name": "A", "value": ""}], [{"name": "A"}])
    resource = {"resource": "limits.cpu"}
    source = [{"name": "A", "valueFrom": {"resourceFieldRef": resource}}]
    divided = [{"name": "A", "valueFrom": {"resourceFieldRef": {**resource, "divisor": "0"}}}]
    yield Form("divisor appears", env, source, divided)
    named = {**resource, "containerName": ""}
    named_source = [{"name": "A", "valueFrom": {"resourceFieldRef": named}}]
    yield Form("containerName empty", env, named_source, divided)
    yield Form("prefix empty", (*CONTAINER, "envFrom"), [{"prefix": ""}], [{}])
    yield Form(
        "ports with zeros",
        (*CONTAINER, "ports"),
        [{"containerPort": 80, "hostPort": 0, "hostIP": "", "name": ""}],
        [{"containerPort": 80}],
    )
    yield Form(
        "mount with zeros",
        (*CONTAINER, "volumeMounts"),
        [{"name": "v", "mountPath": "/v", "readOnly": False, "subPath": "", "subPathExpr": ""}],
        [{"name": "v", "mountPath": "/v"}],
    )
    get = {"path": "/", "port": 80}
    zeros = {"initialDelaySeconds": 0, "timeoutSeconds": 0, "periodSeconds": 0}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        written = {"httpGet": {**get, "host": "", "scheme": ""}, **zeros, "successThreshold": 0}
        yield Form(f"{probe} with zeros", (*CONTAINER, probe), written, {"httpGet": get})
    amounts = (*CONTAINER, "resources")
    for name, written, back in (
        ("cpu", "0.5", "500m"),
        ("cpu", "1000m", "1"),
        ("cpu", 2, "2"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1e3", "1e3"),
        ("memory", "1.5Gi", "1536Mi"),
        ("nvidia.com/gpu", 8, "8"),
    ):
        for kind in ("limits", "requests"):
            at_kind = {kind: {name: written}}, {kind: {name: back}}
            yield Form(f"{kind} {name} {written!r}", amounts, *at_kind)
    yield Form("overhead", (*SPEC, "overhead"), {"cpu": "0.25"}, {"cpu": "250m"})
    for name, written, back in (
        ("emptyDir medium", {"emptyDir": {"medium": ""}}, {"emptyDir": {}}),
        ("emptyDir size", {"emptyDir": {"sizeLimit": "0.5"}}, {"emptyDir": {"sizeLimit": "500m"}}),
        (
            "claim not read-only",
            {"persistentVolumeClaim": {"claimName": "c", "readOnly": False}},
            {"persistentVolumeClaim": {"claimName": "c"}},
        ),
        (
            "nfs not read-only",
            {"nfs": {"server": "s", "path": "/", "readOnly": False}},
            {"nfs": {"server": "s", "path": "/"}},
        ),
        ("secret without name", {"secret": {"secretName": ""}}, {"secret": {}}),
        (
            "secret items empty",
            {"secret": {"secretName": "s", "items": []}},
            {"secret": {"secretName": "s"}},
        ),
        (
            "projected divisor",
            {"downwardAPI": {"items": [{"path": "p", "resourceFieldRef": resource}]}},
            {
                "downwardAPI": {
                    "items": [{"path": "p", "resourceFieldRef": {**resource, "divisor": "0"}}]
                }
            },
        ),
        (
            "audience empty",
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": ""}}]}},
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ),
    ):
        volume = {"name": "v"}
        yield Form(name, (*SPEC, "volumes"), [{**volume, **written}], [{**volume, **back}])
    yield Form(
        "toleration with empty texts",
        (*SPEC, "tolerations"),
        [{"key": "k", "operator": "Exists", "effect": "", "value": ""}],
        [{"key": "k", "operator": "Exists"}],
    )
    yield Form(
        "pod failure policy of the Kubernetes documentation",
        (*JOB, "spec", "podFailurePolicy"),
        {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": ""}],
                }
            ]
        },
    )
    yield Form(
        "no exit code rules", (*JOB, "spec", "podFailurePolicy"), {"rules": []}, {"rules": []}
    )
    yield Form("job selector labels empty", (*JOB, "spec", "selector"), {"matchLabels": {}}, {})
    yield Form("supplemental groups empty", (*SPEC, "securityContext"), {"sysctls": []}, {})
    yield Form(
        "seLinux level empty",
        (*SPEC, "securityContext"),
        {"seLinuxOptions": {"level": "", "role": ""}},
        {"seLinuxOptions": {}},
    )
    policy = ("spec", "failurePolicy")
    yield Form("no rules", policy, {"maxRestarts": 3, "rules": []}, {"maxRestarts": 3})
    yield Form("no restarts", policy, {"maxRestarts": 0}, {})
    yield Form(
        "rule without targets",
        policy,
        {"rules": [{"name": "a", "action": "FailJobSet", "targetReplicatedJobs": []}]},
        {"rules": [{"name": "a", "action": "FailJobSet"}]},
    )
    yield Form(
        "success policy without targets",
        ("spec", "successPolicy"),
        {"operator": "Any", "targetReplicatedJobs": []},
        {"operator": "Any"},
    )
    yield Form("subdomain of the network", ("spec", "network"), {"subdomain": ""}, {})
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    storage = {"requests": {"storage": "1024Mi"}}, {"requests": {"storage": "1Gi"}}
    stored, typed = ({**claim["spec"], "resources": each} for each in storage)
    yield Form(
        "claim's status appears",
        CLAIMS,
        [{"templates": [{**claim, "spec": stored}]}],
        [{"templates": [{**claim, "spec": typed, "status": {}}]}],
    )


FORMS = tuple(_all())


def with_value(obj: dict, path: tuple[str | int, ...], value: Any) -> dict:
    """Return a copy with ``value`` at ``path``; ``None`` removes the field."""
    out: Any = copy.deepcopy(obj)
    at = out
    for part in path[:-1]:
        at = at[part] if isinstance(part, int) else at.setdefault(part, {})
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return out


def pair(form: Form) -> tuple[dict, dict]:
    """Return the JobSet as written and as it is written back."""
    base = jobset(rjob(job={"parallelism": 1, "completions": 1}))
    if form.path == CLAIMS:
        base = with_value(base, (*CONTAINER, "volumeMounts"), [{"name": "data", "mountPath": "/d"}])
    return with_value(base, form.path, form.written), with_value(base, form.path, form.back)


def gathered() -> dict[str, dict]:
    """Return all forms as written, in few JobSets: those of Job templates share one."""
    rest = {form.name: pair(form)[0] for form in FORMS if form.path[: len(JOB)] != JOB}
    jobs = [
        {**pair(form)[0]["spec"]["replicatedJobs"][0], "name": f"form-{at}"}
        for at, form in enumerate(FORMS)
        if form.name not in rest
    ]
    return {"of Job templates": jobset(*jobs), **rest}
