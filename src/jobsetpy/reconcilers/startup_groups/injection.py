"""Injection of a startup group's barrier, an init container (KEP-498).

The pod itself has all that is needed, set through its Job: no cache is read, so none can be stale.
The container reads its attempt through the downward API and waits for that one.

Two ways to wait. ``Volume``: a shell loop reads the mounted ConfigMap, which a kubelet updates
about every minute. ``Watch``: the agent watches the ConfigMap, and reads the mount, too.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.group_signal import MOUNT_PATH, STARTED, WAITING, config_map_name
from jobsetpy.reconcilers.rules.injected_containers import (
    RESTRICTED,
    ContainerDefaults,
    field_variables,
    pull_secret_patch,
    resources_for,
)
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    Patch,
    child,
    containers,
    items,
    number,
    objects,
    text,
)

UID: Final = 65532
"""User ID of the shell's container in a pod that states no user: an image of a shell runs as root
unless configured otherwise. The user of the agent's image is a number that is not root."""

SCRIPT: Final = f"""\
trap 'exit 143' TERM
up() {{ read -r now rest < /proc/uptime; now=${{now%%.*}}; }}
mine() {{
  uid= number= started= size= time=
  read -r uid number started size time 2>/dev/null < {MOUNT_PATH}/$1 || [ -n "$uid" ] &&
    [ "$uid" = "$JOBSET_UID" ] && [ "$number" -ge "$GROUP_ATTEMPT" ] 2>/dev/null
}}
up; began=$now
until mine {STARTED}; do
  up
  if [ "${{GROUP_TIMEOUT:-0}}" -gt 0 ] && [ $((now - began)) -ge "$GROUP_TIMEOUT" ]; then
    said="fewer than $GROUP_SIZE pods had started"
    mine {WAITING} && said="$started of $size pods had started at $time"
    said="group scheduling timed out after $GROUP_TIMEOUT s: $said"
    echo "$said" >&2
    printf %s "$said" > /dev/termination-log
    exit 1
  fi
  sleep 1
done
"""
"""Shell script that ends with 0 when the group is released, with 1 and a message on timeout.

It needs a POSIX shell, ``sleep`` and /proc, whose clock is monotonic. A value of another JobSet or
of an older attempt releases nothing: see ``api.group_signal``."""

_WATCH_COMMAND: Final = ["wait-for-group"]


@attrs.frozen(kw_only=True)
class GroupBarrier:
    """Images of the barrier.

    Args:
        shell_image: image for ``Volume``.
        agent_image: image for ``Watch``; "" for ``Volume`` everywhere.
    """

    shell_image: str = keys.GROUP_IMAGE
    agent_image: str = ""


def add_barrier(
    pod: Json,
    barrier: GroupBarrier,
    *,
    settings: ContainerDefaults | None = None,
) -> Patch:
    """Return a JSON patch that makes a new pod wait for its group; empty if it has none.

    The container is the last of the ordinary init containers, before sidecars that follow it: a
    sidecar that itself waits for the group must not delay its start. A pod that has a container of
    that name is not changed.

    Args:
        pod: the pod to create.
        barrier: images of the container.
        settings: resources and pull secret of the container, if not the defaults.
    """
    annotations = child(pod, "metadata", "annotations")
    spec = child(pod, "spec")
    if not isinstance(annotations.get(keys.GROUP_ATTEMPT), str):
        return []
    if any(text(each, "name") == keys.GROUP_INIT_CONTAINER for each in containers(spec)):
        return []
    jobset = text(child(pod, "metadata", "labels"), keys.JOBSET_NAME)
    source = {"name": config_map_name(jobset), "optional": True}
    volume = {"name": keys.GROUP_VOLUME, "configMap": source}
    settings = (settings or ContainerDefaults()).with_annotations(annotations)
    container = _container(pod, barrier) | resources_for(spec, settings)
    patch = _added(spec, "initContainers", container, str(_place(spec)))
    patch += pull_secret_patch(spec, settings.pull_secret)
    there = any(text(each, "name") == keys.GROUP_VOLUME for _, each in objects(spec, "volumes"))
    return patch if there else patch + _added(spec, "volumes", volume, "-")


def _place(spec: Json) -> int:
    """Return the index after the last init container that is not a sidecar."""
    ordinary = [
        at for at, each in objects(spec, "initContainers") if each.get("restartPolicy") != "Always"
    ]
    return ordinary[-1] + 1 if ordinary else 0


def _added(spec: Json, name: str, value: Json, at: str) -> Patch:
    if not items(spec, name):
        return [{"op": "add", "path": f"/spec/{name}", "value": [value]}]
    return [{"op": "add", "path": f"/spec/{name}/{at}", "value": value}]


def _container(pod: Json, barrier: GroupBarrier) -> dict[str, Any]:
    spec = child(pod, "spec")
    out: dict[str, Any] = {
        "name": keys.GROUP_INIT_CONTAINER,
        "env": field_variables(_fields(pod)),
        "volumeMounts": [{"name": keys.GROUP_VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}],
        # The default for the tag `latest` would query the registry at each start of each pod.
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    # Without a token it cannot watch.
    watch = bool(barrier.agent_image) and spec.get("automountServiceAccountToken") is not False
    out["securityContext"] = _security(spec, shell=not watch)
    if watch:
        out |= {"image": barrier.agent_image, "args": list(_WATCH_COMMAND)}
    else:
        out |= {"image": barrier.shell_image, "command": ["sh", "-c", SCRIPT]}
    return out


def _fields(pod: Json) -> dict[str, str]:
    fields = {
        "JOBSET_UID": f"metadata.labels['{keys.JOBSET_UID}']",
        "GROUP_ATTEMPT": f"metadata.annotations['{keys.GROUP_ATTEMPT}']",
        "GROUP_SIZE": f"metadata.annotations['{keys.GROUP_SIZE}']",
    }
    if keys.GROUP_TIMEOUT in child(pod, "metadata", "annotations"):
        fields["GROUP_TIMEOUT"] = f"metadata.annotations['{keys.GROUP_TIMEOUT}']"
    fields["NAMESPACE"] = "metadata.namespace"
    fields["POD_NAME"] = "metadata.name"
    fields["JOBSET_NAME"] = f"metadata.labels['{keys.JOBSET_NAME}']"
    return fields


def _security(spec: Json, *, shell: bool) -> dict[str, Any]:
    """Return the security context of the restricted profile, with the user of the pod.

    A platform may allow a namespace only users of a range, and may have assigned one to each
    container before this one is added (OpenShift does both): so that of the workers is taken.

    Args:
        spec: spec of the pod.
        shell: whether the image is that of a shell, which may run as root by default.
    """
    out = dict(RESTRICTED)
    own = number(child(spec, "securityContext"), "runAsUser")
    if own == 0:
        out["runAsNonRoot"] = False
    elif own is None:
        users = (number(child(each, "securityContext"), "runAsUser") for each in containers(spec))
        user = next((user for user in users if user), UID if shell else None)
        if user is not None:
            out["runAsUser"] = user
    return out
