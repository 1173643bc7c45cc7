import attrs

from jobsetpy import runtime as rt


@attrs.frozen
class FailedPodCounter:
    """Keep a Job's ``example.com/failed-pods`` label equal to its failed Pods."""

    client: rt.Client
    jobs: rt.Store[rt.Job]
    pods: rt.Store[rt.Pod]

    async def reconcile(self, request: rt.Request) -> rt.Result:
        job = self.jobs.get(request.key)
        if job is None:
            return rt.Result.done()
        pods = self.pods.by_index(rt.OWNER_UID, job.metadata.uid)
        labels = {"example.com/failed-pods": str(sum(p.status.phase == "Failed" for p in pods))}
        if not labels.items() <= job.metadata.labels.items():
            change = {"metadata": {"labels": labels}}
            await self.client.merge_patch(rt.Job, *request.key, change)
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    jobs, pods = manager.informer(rt.Job), manager.informer(rt.Pod, indexes=[rt.OWNER_UID])
    reconciler = FailedPodCounter(manager.client, jobs.store, pods.store)
    watches = rt.Watch(jobs, rt.enqueue_self), rt.Watch(pods, rt.enqueue_owner(rt.Job))
    manager.add(rt.Controller(name="failed-pod-counter", reconciler=reconciler, watches=watches))
