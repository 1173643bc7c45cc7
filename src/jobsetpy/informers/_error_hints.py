"""Hints for users: how to fix a list or watch that the API server refuses."""

from __future__ import annotations

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.errors import ConnectFailedError, ForbiddenError, NotFoundError, UnauthorizedError

_UNAUTHORIZED = (
    "The API server does not accept the credentials: has the token expired, or is it another "
    "cluster's? `kubectl auth whoami` with the same kubeconfig shows"
)
_UNREACHABLE = (
    "Is the API server running, and is its address in the kubeconfig (--kubeconfig, $KUBECONFIG) "
    "right? `kubectl get --raw /version` with the same kubeconfig shows"
)


def advice(error: Exception, resource: ResourceInfo, namespace: str = "") -> str:
    """Return a hint on how to fix a failure; "" if there is none.

    Args:
        error: failure of a list or watch.
        resource: the requested resource.
        namespace: the requested namespace; "" for all.
    """
    if isinstance(error, NotFoundError):
        return _unknown(resource)
    if isinstance(error, ForbiddenError):
        return _forbidden(resource, namespace)
    if isinstance(error, UnauthorizedError):
        return _UNAUTHORIZED
    if isinstance(error, ConnectFailedError):
        return _UNREACHABLE
    return ""


def _unknown(resource: ResourceInfo) -> str:
    if "." not in resource.group or resource.group.endswith(".k8s.io"):
        installed = "another release of Kubernetes may, or its --runtime-config switches it off"
    else:
        name = f"{resource.plural}.{resource.group}"
        installed = (
            f"is the CustomResourceDefinition {name} installed, with version "
            f"{resource.version} served?"
        )
    return (
        f"The API server has no {resource.plural} in {resource.api_version} "
        f"(kind {resource.kind}): {installed}"
    )


def _forbidden(resource: ResourceInfo, namespace: str) -> str:
    role = f"Role in namespace {namespace}" if namespace else "ClusterRole"
    return (
        f"The credentials may not list and watch {resource.plural}; the {role} bound to them needs "
        "this rule:\n"
        f'- apiGroups: ["{resource.group}"]\n'
        f'  resources: ["{resource.plural}"]\n'
        '  verbs: ["get", "list", "watch"]'
    )
