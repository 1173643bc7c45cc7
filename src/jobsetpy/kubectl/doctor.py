"""``doctor``: is the cluster fit for JobSets and for restarts in place, and how to repair it."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.errors import ApiError, ForbiddenError, NotFoundError
from jobsetpy.kubectl import output
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import EXIT_ERROR
from jobsetpy.kubectl.objects import conditions_of
from jobsetpy.reconcilers.rules import definition
from jobsetpy.reconcilers.rules.json_tree import Json, child, items

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"
UNKNOWN: Final = "unknown"

RULES_SINCE: Final = (1, 35)
"""Kubernetes release whose kubelets know the action RestartAllContainers, behind a gate."""
RULES_ON_SINCE: Final = (1, 36)
"""The one where that gate is on by default."""
OLDEST: Final = (1, 30)
"""ValidatingAdmissionPolicy is stable from there on."""

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
_AGENT: Final = "jobset-agent"
_STYLES: Final = {OK: "green", WARNING: "yellow", ERROR: "red", UNKNOWN: "blue"}
_INSTALL: Final = "kubectl apply -k config/default"
_MANAGER_LOG: Final = "kubectl -n jobset-system logs deploy/jobset-controller-manager"
_FORGETFUL: Final = (
    "a kubelet that restarts forgets the probes of sidecar agents that wait, unless its gate "
    "ChangeContainerStatusOnKubeletRestart is true; supervisors and startup groups use no probe"
)
_SUPERVISOR: Final = (
    "kubectl annotate jobset NAME jobset.sigs.k8s.io/in-place-restart-agent=supervisor "
    "(in the manifest, before it is created)"
)
Result = tuple[str, str] | tuple[str, str, str]
"""Verdict, message and fix of a :class:`Finding`."""


class Finding(NamedTuple):
    """Result of one check.

    Args:
        check: what was looked at.
        verdict: ``ok``, ``warning``, ``error`` or ``unknown``.
        message: what was found.
        fix: a command that repairs it, or tells more.
    """

    check: str
    verdict: str
    message: str
    fix: str = ""


def configure(_: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments of its own."""


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Run all checks; return 1 if one has found an error."""
    found: list[Finding] = []
    for check, look in _CHECKS:
        result: Result
        try:
            result = await look(cluster)
        except ForbiddenError:
            result = UNKNOWN, "no right to read it"
        except ApiError as error:
            result = UNKNOWN, error.message
        found.append(Finding(check, *result))
    if options.output:
        output.write([each._asdict() for each in found], options.output)
    else:
        _print(found)
    return EXIT_ERROR if any(each.verdict == ERROR for each in found) else 0


def _print(found: Iterable[Finding]) -> None:
    for each in found:
        verdict = output.paint(f"{each.verdict:8}", _STYLES[each.verdict])
        print(f"{verdict}{each.check}: {output.clean(each.message)}")  # noqa: T201
        if each.fix:
            print(f"        {output.paint(output.clean(each.fix), 'dim')}")  # noqa: T201


async def _server(cluster: Cluster) -> Result:
    version = (await cluster.get("/version")).get("gitVersion", "")
    if _release(version) < OLDEST:
        text = f"{version} is older than {_text(OLDEST)}, with which nothing here was tried"
        return WARNING, text, "kubectl version"
    return OK, version


async def _crd(cluster: Cluster) -> Result:
    crd = await _found(cluster, _CRD)
    if crd is None:
        return ERROR, "JobSets are not installed", _INSTALL
    versions = crd.get("spec", {}).get("versions") or [{}]
    schema = versions[0].get("schema", {}).get("openAPIV3Schema", {}).get("properties", {})
    missing = definition.missing_fields(
        {part: schema.get(part, {}).get("properties", {}) for part in ("spec", "status")}
    )
    if "status.syncedEpoch" in missing:
        text = "it is another controller's: it knows no epochs, so restarts in place cannot work"
        return ERROR, text, definition.FIX
    if missing:
        text = f"it is older than this plugin: it has no {definition.listed(missing)}"
        return WARNING, text, definition.FIX
    return OK, "it has all fields of this release"


async def _webhooks(kind: str, cluster: Cluster) -> Result:
    path = f"{kind}webhookconfigurations/jobset-{kind}-webhook-configuration"
    found = await _found(cluster, f"{_ADMISSION}/{path}")
    if found is None:
        text = "not there: JobSets get no defaults, agents are not injected, mistakes stay"
        return WARNING, text, _INSTALL
    hooks = found.get("webhooks") or []
    service = hooks[0]["clientConfig"].get("service") if hooks else None
    if not hooks or any(not each["clientConfig"].get("caBundle") for each in hooks):
        text = "the manager has not put its certificate authority there yet"
        return await _unpulled(cluster, service) or (ERROR, text, _MANAGER_LOG)
    if service is None:
        return OK, "reached by a URL"
    space, name = service["namespace"], service["name"]
    slices = await cluster.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices",
        ("labelSelector", f"kubernetes.io/service-name={name}"),
    )
    ready = sum(
        1
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready") is not False
    )
    if not ready:
        text = f"no pod answers for Service {space}/{name}: JobSets cannot be created"
        fix = f"kubectl -n {space} get pods,endpointslices"
        return await _unpulled(cluster, service) or (ERROR, text, fix)
    return OK, f"{ready} {'pod answers' if ready == 1 else 'pods answer'}"


async def _unpulled(cluster: Cluster, service: Json | None) -> Result | None:
    """Return the image that keeps a manager from starting, in the namespace of its Service."""
    space = (service or {}).get("namespace", keys.SYSTEM_NAMESPACE)
    for pod in await cluster.items(f"/api/v1/namespaces/{space}/pods"):
        for status in pod.get("status", {}).get("containerStatuses") or ():
            if why := _pull_problem(status):
                name = pod["metadata"]["name"]
                text = f"pod {name} cannot pull its image: {status['image']} ({why})"
                return ERROR, text, f"kubectl -n {space} describe pod {name}"
    return None


def _pull_problem(container: Json) -> str:
    reason = (container.get("state", {}).get("waiting") or {}).get("reason", "")
    return reason if reason in {"ErrImagePull", "ImagePullBackOff", "InvalidImageName"} else ""


async def _agents_policy(cluster: Cluster) -> Result:
    if await _found(cluster, f"{_ADMISSION}/validatingadmissionpolicies/{_AGENT}") is None:
        text = "not there: an agent's account may change more of pods than its own epoch"
        return WARNING, text, "kubectl apply -k config/agent/policy"
    return OK, "agents may change their own epoch only"


async def _agents_account(cluster: Cluster) -> Result:
    space = cluster.namespace
    if await _found(cluster, f"/api/v1/namespaces/{space}/serviceaccounts/{_AGENT}") is None:
        text = f"no account {_AGENT} in {space}: agents of its JobSets need another with its rights"
        return WARNING, text, f"kubectl -n {space} apply -k config/agent/account"
    return OK, f"{_AGENT} is in {space}"


async def _kubelets(cluster: Cluster) -> Result:
    nodes = await cluster.items("/api/v1/nodes")
    if not nodes:
        return WARNING, "there are no nodes", "kubectl get nodes"
    by_version = Counter(map(_kubelet, nodes))
    counted = ", ".join(f"{count} at {version}" for version, count in sorted(by_version.items()))
    undeclared = [
        _release(_kubelet(node))
        for node in nodes
        if keys.RESTART_ALL_FEATURE not in items(child(node, "status"), "declaredFeatures")
    ]
    oldest = min(undeclared, default=RULES_ON_SINCE)
    if oldest < RULES_ON_SINCE:
        need = f"the gate {keys.RESTART_ALL_FEATURE}"
        if oldest < RULES_SINCE:
            need = f"{_text(RULES_SINCE)}; supervisors work everywhere"
        return WARNING, f"{counted}: sidecar agents need {need}", _SUPERVISOR
    unready = (node for node in nodes if "Ready" in conditions_of(node, "False", "Unknown"))
    if lost := [node["metadata"]["name"] for node in unready]:
        text = f"{counted}; not ready: {', '.join(lost[:5])}"
        return WARNING, text, f"kubectl describe node {lost[0]}"
    return OK, f"{counted}; {_FORGETFUL}"


def _kubelet(node: Json) -> str:
    return str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""))


_CHECKS: Final = (
    ("API server", _server),
    ("CRD", _crd),
    ("webhooks (mutating)", partial(_webhooks, "mutating")),
    ("webhooks (validating)", partial(_webhooks, "validating")),
    ("agents' policy", _agents_policy),
    ("agents' account", _agents_account),
    ("kubelets", _kubelets),
)


async def _found(cluster: Cluster, path: str) -> Json | None:
    try:
        return await cluster.get(path)
    except NotFoundError:
        return None


def _release(version: str) -> tuple[int, int]:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
