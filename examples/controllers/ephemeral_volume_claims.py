"""EphemeralVolumeClaim: a volume claim of some size, which goes with the object that asked for it.

cd examples/controllers
jobsetpy crds ephemeral_volume_claims:EphemeralVolumeClaim | kubectl apply -f -
jobsetpy run ephemeral_volume_claims:setup
"""

from typing import ClassVar

import attrs

from jobsetpy import runtime as rt

NAME = "ephemeral-volume-claims"


@rt.model
class Spec:
    size: str = rt.field(default="", required=True, min_length=1, description="Such as 10Gi.")


@rt.model
class Status:
    claim: str = ""
    conditions: tuple[rt.Condition, ...] = rt.field(default=(), map_keys=("type",))


@rt.resource("example.com", "v1", "EphemeralVolumeClaim", "ephemeralvolumeclaims")
@rt.model
class EphemeralVolumeClaim:
    """A volume claim that goes with this object."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    COLUMNS: ClassVar = ({"name": "Size", "type": "string", "jsonPath": ".spec.size"},)
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


@attrs.frozen
class Claims:
    """Keep one PersistentVolumeClaim for each EphemeralVolumeClaim."""

    client: rt.Client

    async def reconcile(self, wanted: EphemeralVolumeClaim) -> rt.Result:
        namespace, name = wanted.metadata.namespace, wanted.metadata.name
        resources = {"requests": {"storage": wanted.spec.size}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        await rt.create_or_apply(
            self.client,
            rt.PersistentVolumeClaim,
            namespace,
            name,
            {"spec": spec},
            owner=NAME,
            controller=wanted,
        )

        def seen(now: EphemeralVolumeClaim) -> Status:
            conditions = rt.set_condition(now.status.conditions, "Ready", True, "ClaimMade")
            return Status(claim=name, conditions=conditions)

        await rt.patch_status(self.client, wanted, seen)
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    wanted = manager.informer(EphemeralVolumeClaim)
    claims = manager.informer(rt.PersistentVolumeClaim)
    reconcile = Claims(manager.client).reconcile
    manager.add(rt.controller_for(wanted, reconcile, name=NAME, owns=[claims]))
