"""Pods with a time to live, such as those for debugging: deleted when their time is over.

cd examples/controllers
kubectl run debug --image=busybox --labels example.com/ttl=30m -- sleep 1d
jobsetpy run pod_ttl:setup

With --leader-elect in a Deployment of two replicas, one is elected, and the other takes over.
"""

from datetime import timedelta

import attrs

from jobsetpy import runtime as rt

NAME = "pod-ttl"
TTL = "example.com/ttl"


@attrs.frozen
class Expiry:
    """Delete each pod when it is older than its label says."""

    client: rt.Client
    clock: rt.Clock
    events: rt.EventRecorder

    async def reconcile(self, pod: rt.Pod) -> rt.Result:
        at, text = pod.metadata, pod.metadata.labels.get(TTL, "")
        try:
            ttl = timedelta(seconds=rt.duration(text))
        except ValueError as error:
            self.events.event(pod, "Warning", "InvalidTTL", f"label {TTL}: {error}")
            return rt.Result.done()
        now = self.clock.now()
        left = (at.creation_timestamp or now) + ttl - now
        if left > timedelta():
            return rt.Result.requeue_after(left)
        self.events.event(pod, "Normal", "Expired", f"deleted after {text}")
        await self.client.delete(rt.Pod, at.namespace, at.name, uid=at.uid)
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    pods = manager.informer(rt.Pod, label_selector=TTL)
    reconcile = Expiry(manager.client, manager.clock, manager.recorder(NAME)).reconcile
    manager.add(rt.controller_for(pods, reconcile, name=NAME, when=rt.labels_changed))
