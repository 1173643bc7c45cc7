"""Removal of the coscheduler's scheduling gate from a pod by the manager."""

from __future__ import annotations

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.execution.kinds import ListedPod


async def take_gate_off(client: rt.Client, pod: ChildPod) -> None:
    """Remove the gate; other gates stay. The cache does not hold gates, so they are read first.

    Raises:
        ConflictError: the pod has changed meanwhile; try again.
        NotFoundError: the pod no longer exists.
    """
    meta = pod.metadata
    page = await client.list_page(
        ListedPod, meta.namespace, field_selector=f"metadata.name={meta.name}"
    )
    for found in page.items:
        gates = [gate.name for gate in found.spec.scheduling_gates]
        if found.metadata.uid != meta.uid or keys.COSCHEDULING_GATE not in gates:
            continue
        others = [{"name": name} for name in gates if name != keys.COSCHEDULING_GATE]
        version = found.metadata.resource_version
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": version},
            "spec": {"schedulingGates": others or None},
        }
        await client.merge_patch(ChildPod, meta.namespace, meta.name, body)
