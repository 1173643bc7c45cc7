import attrs

from jobsetpy import runtime as rt
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod


@attrs.frozen
class FailedPodCounter:
    """Keep a Job's ``example.com/failed-pods`` label equal to its failed Pods."""

    client: rt.Client
    jobs: rt.Store[Job]
    pods: rt.Store[Pod]

    async def reconcile(self, request: rt.Request) -> rt.Result:
        job = self.jobs.get(request.key)
        if job is None:
            return rt.Result.done()
        pods = self.pods.by_index(rt.OWNER_UID, job.metadata.uid)
        labels = {"example.com/failed-pods": str(sum(p.status.phase == "Failed" for p in pods))}
        if not labels.items() <= job.metadata.labels.items():
            await self.client.apply_labels(Job, request.key, labels, owner="failed-pod-counter")
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    jobs, pods = manager.informer(Job), manager.informer(Pod, indexes=[rt.OWNER_UID])
    reconciler = FailedPodCounter(manager.client, jobs.store, pods.store)
    watches = rt.Watch(jobs, rt.enqueue_self), rt.Watch(pods, rt.enqueue_owner(Job))
    manager.add(rt.Controller(name="failed-pod-counter", reconciler=reconciler, watches=watches))
