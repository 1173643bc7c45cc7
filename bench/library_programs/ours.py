"""The controller of bench/library.py on jobsetpy.runtime, in its usual style.

The environment has the namespace and number of workers, since setup() takes only the manager.
"""

import os

import attrs

from jobsetpy import runtime as rt

ANNOTATION = "bench.example.com/value"


@attrs.frozen
class Copier:
    """Give each ConfigMap an annotation with a value from its data."""

    client: rt.Client
    objects: rt.Store[rt.ConfigMap]

    async def reconcile(self, request: rt.Request) -> rt.Result:
        found = self.objects.get(request.key)
        if found is None:
            return rt.Result.done()
        value = (found.data or {})["value"]
        if found.metadata.annotations.get(ANNOTATION) != value:
            body = {"metadata": {"annotations": {ANNOTATION: value}}}
            await self.client.merge_patch(rt.ConfigMap, request.namespace, request.name, body)
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    objects = manager.informer(rt.ConfigMap, namespace=os.environ["BENCH_NAMESPACE"])
    watches = [rt.Watch(objects, rt.enqueue_self)]
    given = os.environ.get("BENCH_WORKERS")
    workers = {"workers": int(given)} if given else {}
    reconciler = Copier(manager.client, objects.store)
    manager.add(rt.Controller(name="copier", reconciler=reconciler, watches=watches, **workers))
