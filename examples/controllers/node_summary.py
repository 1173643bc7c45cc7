"""How many nodes each zone has, in a ConfigMap: many objects come into one.

cd examples/controllers
jobsetpy run node_summary:setup
"""

import attrs

from jobsetpy import runtime as rt

NAME = "node-summary"
ZONE = "topology.kubernetes.io/zone"
WRITTEN = rt.ObjectKey("default", NAME)

# Counted as nodes come and go: a reconcile reads a few numbers, however many nodes there are.
ZONES: rt.Index[rt.Node] = rt.Index("zones", lambda node: node.metadata.labels.get(ZONE, "none"))


@attrs.frozen
class Summary:
    """Keep the ConfigMap as the nodes are."""

    client: rt.Client
    nodes: rt.Store[rt.Node]

    async def reconcile(self, request: rt.Request) -> rt.Result:
        zones = self.nodes.index_values(ZONES)
        data = {zone: str(self.nodes.index_count(ZONES, zone)) for zone in zones}
        at = request.key
        await rt.create_or_apply(
            self.client, rt.ConfigMap, at.namespace, at.name, {"data": data}, owner=NAME
        )
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    nodes = manager.informer(rt.Node, indexes=[ZONES])
    maps = manager.informer(
        rt.ConfigMap, namespace=WRITTEN.namespace, field_selector=f"metadata.name={NAME}"
    )
    watches = (
        rt.Watch(nodes, rt.enqueue_mapped(lambda _: [WRITTEN]), debounce_s=1),
        rt.Watch(maps, rt.enqueue_self),  # users may change or delete it
    )
    reconciler = Summary(manager.client, nodes.store)
    manager.add(rt.Controller(name=NAME, reconciler=reconciler, watches=watches))
