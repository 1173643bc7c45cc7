"""The barrier that a pod of a group gets: an init container and a volume (KEP-498).

All that is needed stands in the pod itself, put there by way of its Job: no cache is asked, so none
can be stale. The container reads its attempt through the downward API and waits for that one.

Two ways to wait. ``Volume``: a shell loop looks at the mounted ConfigMap, which a kubelet brings up
to date every minute or so. ``Watch``: the agent watches the ConfigMap, and looks at the mount too.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.group_signal import MOUNT_PATH, STARTED, WAITING, config_map_name
from jobsetpy.domain.json_tree import Json, Patch, child, containers, items, objects, text

SHELL_IMAGE: Final = "bash"
"""The KEP's; any image with ``sh`` will do."""

UID: Final = 65532
"""Not root, and not a user of the pod's own programs."""

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
"""Ends with 0 when the group is released, with 1 and a message when it waited too long.

POSIX shell, ``sleep`` and /proc, whose clock nobody sets. A value of another JobSet or of an older
attempt lifts nothing: see ``api.group_signal``."""

_WATCH_COMMAND: Final = ["wait-for-group"]


@attrs.frozen(kw_only=True)
class Barrier:
    """What the init container runs.

    Args:
        shell_image: for the path ``Volume``.
        agent_image: for the path ``Watch``; "" for ``Volume`` everywhere.
    """

    shell_image: str = SHELL_IMAGE
    agent_image: str = ""


def add_barrier(pod: Json, barrier: Barrier) -> Patch:
    """A JSON patch that makes a new pod wait for its group; empty if the pod is of none.

    The container comes last of the ordinary init containers, and before sidecars that follow it:
    its time to wait must not pass behind a sidecar that waits for the group in its own way. A pod
    that has a container of that name is left as it is.
    """
    annotations = child(pod, "metadata", "annotations")
    spec = child(pod, "spec")
    if not isinstance(annotations.get(keys.GROUP_ATTEMPT), str):
        return []
    if any(text(each, "name") == keys.GROUP_INIT_CONTAINER for each in containers(spec)):
        return []
    patch = _added(spec, "initContainers", _container(pod, barrier), _place(spec))
    if not any(text(each, "name") == keys.GROUP_VOLUME for _, each in objects(spec, "volumes")):
        source = {"name": config_map_name(_jobset(pod)), "optional": True}
        volume = {"name": keys.GROUP_VOLUME, "configMap": source}
        patch += _added(spec, "volumes", volume, None)
    return patch


def _place(spec: Json) -> int:
    """Index behind the last init container that is no sidecar."""
    ordinary = [
        at for at, each in objects(spec, "initContainers") if each.get("restartPolicy") != "Always"
    ]
    return ordinary[-1] + 1 if ordinary else 0


def _added(spec: Json, name: str, value: Any, at: int | None) -> Patch:
    if not items(spec, name):
        return [{"op": "add", "path": f"/spec/{name}", "value": [value]}]
    where = "-" if at is None else str(at)
    return [{"op": "add", "path": f"/spec/{name}/{where}", "value": value}]


def _container(pod: Json, barrier: Barrier) -> dict[str, Any]:
    spec = child(pod, "spec")
    out: dict[str, Any] = {
        "name": keys.GROUP_INIT_CONTAINER,
        "env": _environment(pod),
        "volumeMounts": [{"name": keys.GROUP_VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _security(spec),
    }
    # Without a token there is nothing to watch with.
    watch = barrier.agent_image and spec.get("automountServiceAccountToken") is not False
    if watch:
        out |= {"image": barrier.agent_image, "args": list(_WATCH_COMMAND)}
    else:
        out |= {"image": barrier.shell_image, "command": ["sh", "-c", SCRIPT]}
    size = {"cpu": "250m" if watch else "50m", "memory": "64Mi" if watch else "32Mi"}
    if any(child(each, "resources") for each in containers(spec)):
        # Limits equal to requests keep a Guaranteed pod what it is, and quotas content; a pod needs
        # no more for it, as init containers and containers do not run at the same time.
        out["resources"] = {"requests": size, "limits": dict(size)}
    return out


def _environment(pod: Json) -> list[dict[str, Any]]:
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
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]


def _security(spec: Json) -> dict[str, Any]:
    """As the restricted profile demands; the pod's own user where it has one."""
    out: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    own = child(spec, "securityContext").get("runAsUser")
    if own is None:
        out["runAsUser"] = UID
    elif own == 0:
        out["runAsNonRoot"] = False
    return out


def _jobset(pod: Json) -> str:
    return text(child(pod, "metadata", "labels"), keys.JOBSET_NAME)
