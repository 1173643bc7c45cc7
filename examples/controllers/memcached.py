"""Memcached: servers of a size, a Service, and an entry in the namespace's list of addresses.

cd examples/controllers
jobsetpy crds memcached:Memcached | kubectl apply -f -
jobsetpy run memcached:setup
"""

from contextlib import suppress
from typing import ClassVar

import attrs

from jobsetpy import runtime as rt
from jobsetpy.runtime import bodies

NAME = "memcached"
ADDRESSES = "memcached-addresses"  # the ConfigMap that programs read
PORT = 11211
FINALIZER = rt.finalizer("example.com/memcached-address")


@rt.model
class Spec:
    size: int = rt.field(default=1, defaulted=True, minimum=0, maximum=9)
    memory_mb: int = rt.field(default=64, defaulted=True, minimum=16)


@rt.model
class Status:
    ready: int = 0
    conditions: tuple[rt.Condition, ...] = rt.field(default=(), map_keys=("type",))


@rt.resource("example.com", "v1", "Memcached", "memcacheds")
@rt.model
class Memcached:
    """Some memcached servers behind one address."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    COLUMNS: ClassVar = ({"name": "Ready", "type": "integer", "jsonPath": ".status.ready"},)
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


@attrs.frozen
class Memcacheds:
    """Keep Deployment, Service and address as each Memcached says."""

    client: rt.Client
    events: rt.EventRecorder
    lists: rt.Store[rt.ConfigMap]

    async def reconcile(self, wanted: Memcached) -> rt.Result:
        if await FINALIZER.guard(self.client, wanted, self.unlist):
            return rt.Result.done()
        where, name, spec = wanted.metadata.namespace, wanted.metadata.name, wanted.spec
        labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": name}
        container = bodies.Container(
            name=NAME,
            image="memcached:1.6",
            args=[f"--memory-limit={spec.memory_mb}"],
            ports=[{"containerPort": PORT, "name": NAME, "protocol": "TCP"}],
        )
        servers = bodies.DeploymentSpec(
            replicas=spec.size,
            selector={"matchLabels": labels},
            template={"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        )
        service = bodies.ServiceSpec(selector=labels, ports=[{"port": PORT, "targetPort": NAME}])
        made = await rt.create_or_apply(
            self.client,
            rt.Deployment,
            where,
            name,
            {"spec": servers},
            owner=NAME,
            controller=wanted,
        )
        if made.drift:
            self.events.event(wanted, "Normal", "Changed", f"set {', '.join(made.drift)}")
        await rt.create_or_apply(
            self.client, rt.Service, where, name, {"spec": service}, owner=NAME, controller=wanted
        )
        await self.enlist(rt.ObjectKey(where, ADDRESSES), name, f"{name}.{where}.svc:{PORT}")
        ready = made.obj.status.ready_replicas

        def seen(now: Memcached) -> Status:
            text = f"{ready} of {spec.size} servers are ready"
            reason = "AllReady" if ready >= spec.size else "NotReady"
            conditions = rt.set_condition(
                now.status.conditions, "Available", ready >= spec.size, reason, text
            )
            return Status(ready=ready, conditions=conditions)

        await rt.patch_status(self.client, wanted, seen)
        return rt.Result.done()

    async def enlist(self, at: rt.ObjectKey, name: str, address: str) -> None:
        """Write the address into the list, which all Memcacheds of the namespace share."""
        listed = self.lists.get(at)
        if listed is None:
            await rt.create_or_apply(
                self.client, rt.ConfigMap, at.namespace, at.name, {}, owner=NAME
            )
        if listed is None or (listed.data or {}).get(name) != address:
            entry = {"data": {name: address}}
            await self.client.merge_patch(rt.ConfigMap, at.namespace, at.name, entry)

    async def unlist(self, gone: Memcached) -> None:
        """Take the address off the list, which no garbage collector would do."""
        entry = {"data": {gone.metadata.name: None}}
        with suppress(rt.NotFoundError):
            await self.client.merge_patch(rt.ConfigMap, gone.metadata.namespace, ADDRESSES, entry)


def unlisted(event: rt.Event[rt.ConfigMap]) -> list[rt.Request]:
    """Return those whose address was changed or taken away; all others have nothing to do."""
    before, after = [(each and each.data) or {} for each in (event.old, event.new)]
    names = [name for name, address in before.items() if after.get(name) != address]
    return [rt.Request(rt.ObjectKey(event.obj.metadata.namespace, name)) for name in names]


def setup(manager: rt.Manager) -> None:
    wanted = manager.informer(Memcached)
    deployments, services = manager.informer(rt.Deployment), manager.informer(rt.Service)
    lists = manager.informer(rt.ConfigMap, field_selector=f"metadata.name={ADDRESSES}")
    watches = [rt.Watch(lists, unlisted)]
    reconcile = Memcacheds(manager.client, manager.recorder(NAME), lists.store).reconcile
    manager.add(
        rt.controller_for(
            wanted,
            reconcile,
            name=NAME,
            owns=[deployments, services],
            watches=watches,
            deleting=True,
        )
    )
