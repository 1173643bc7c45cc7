"""A cluster of many pods for ``bench/scale.py``: the fake API server, with pods stored directly.

JobSets, Jobs and a manager's writes are handled by the fake server as in tests. Pods would take 2
ms each there, so they are stored without checks: 6 kB of JSON each, like real ones. Their lists are
served in pages from memory, as a real server does from its watch cache.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from aiohttp import web

from bench.memory import pod_json
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing import FakeApiServer
from jobsetpy.testing.apiserver._storage import (  # the server's inside, for speed
    Collection,
    Version,
)

Json = dict[str, Any]
LISTS = 8
"""Maximum number of lists that are paged through at a time, such as those of several managers."""


class PlayedCluster(FakeApiServer):
    """The server, and the simulated Job controller, kubelets and agents."""

    def __init__(self) -> None:
        super().__init__(history_limit=400_000)
        self.register(JobSet)
        self.pods_listed = 0
        self._listed: dict[int, list[Version]] = {}
        self._sample: Json = msgspec.json.decode(pod_json(1, 1))

    @property
    def pods(self) -> Collection:
        """All pods."""
        found = self._storage.find("", "pods")
        assert found is not None
        return found

    def jobs(self) -> list[Json]:
        """All Jobs, which are not to be changed."""
        found = self._storage.find("batch", "jobs")
        assert found is not None
        return [version.obj for version in found.objects.values()]

    def jobset(self, namespace: str, name: str) -> Json:
        """A JobSet, which is not to be changed; ``{}`` if there is none."""
        found = self._storage.find("jobset.x-k8s.io", "jobsets")
        assert found is not None
        return found.get(ObjectKey(namespace, name)) or {}

    def add_pods(self, job: Json, count: int, epoch: int) -> list[ObjectKey]:
        """A Job's pods, which run at an epoch."""
        meta = job["metadata"]
        template = job["spec"]["template"]["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"],
                 "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        labels = {**template.get("labels", {}), "batch.kubernetes.io/job-name": meta["name"]}
        made = []
        for index in range(count):
            name = f"{meta['name']}-{index}-abcde"
            annotations = {
                **template.get("annotations", {}),
                keys.COMPLETION_INDEX_ANNOTATION: str(index),
                keys.EPOCH_ANNOTATION: str(epoch),
            }
            body = {
                "metadata": {
                    **self._sample["metadata"],
                    "name": name,
                    "namespace": meta["namespace"],
                    "uid": str(uuid.uuid4()),
                    "labels": labels,
                    "annotations": annotations,
                    "ownerReferences": [owner],
                },
                "spec": {**self._sample["spec"], "nodeName": f"node-{len(self.pods.objects)}"},
                "status": self._sample["status"],
            }
            key = ObjectKey(meta["namespace"], name)
            self._storage.put(self.pods, key, body)
            made.append(key)
        return made

    def set_epoch(self, key: ObjectKey, epoch: int) -> None:
        """Patch that a pod's agent writes."""
        old = self.pods.objects[key].obj
        meta = dict(old["metadata"])
        meta["annotations"] = {**meta["annotations"], keys.EPOCH_ANNOTATION: str(epoch)}
        self._storage.put(self.pods, key, {**old, "metadata": meta})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/api/v1/pods" and "watch" not in request.query:
            return web.Response(
                body=self._page(request.query.get("continue", ""), request.query.get("limit", "")),
                content_type="application/json",
            )
        return await super()._handle(request)

    def _page(self, token: str, limit: str) -> bytes:
        version, _, start = token.partition("-")
        number, at, count = int(version or self._storage.version), int(start or 0), int(limit or 0)
        if not token:
            self._listed[number] = list(self.pods.objects.values())
            for old in sorted(self._listed)[:-LISTS]:
                del self._listed[old]
        everything = self._listed[number]
        end = at + count if count else len(everything)
        more = f',"continue":"{number}-{end}"' if end < len(everything) else ""
        meta = f'"metadata":{{"resourceVersion":"{number}"{more}}}'
        head = f'{{"kind":"PodList","apiVersion":"v1",{meta},"items":['
        self.pods_listed += len(everything[at:end])
        return head.encode() + b",".join(each.bare for each in everything[at:end]) + b"]}"
