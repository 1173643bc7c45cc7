"""Shards by a name: how evenly names are spread, and objects that move between shards."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.aio import supervise
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client, WatchFrame
from jobsetpy.informers import Assignment, KeyedShard, SharedInformer, WatchOptions
from jobsetpy.informers._events import Applied
from jobsetpy.informers._keyed_shard import place_of
from jobsetpy.informers._machine import WatchMachine
from jobsetpy.reconcilers.execution.shards import jobset_name_of, peek
from jobsetpy.testing import World, make_pod
from support.informers_kit import HandlerLog
from support.jobsets import decoded

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=30)


@given(NAMES, NAMES, st.integers(2, 64))
def test_each_name_is_in_one_shard(namespace, name, count):
    """Exactly one shard holds a name, and always the same one."""
    metadata = decoded(JobSet, {"metadata": {"namespace": namespace, "name": name}}).metadata
    key = jobset_name_of(JobSet)
    holding = [
        index for index in range(count) if KeyedShard(Assignment(count, index), key).holds(metadata)
    ]

    assert holding == [place_of(namespace, name, count)]


def test_the_hash_is_the_same_in_every_release():
    """Processes of two releases share the JobSets during a rollout."""
    assert [place_of("default", f"gang-{number}", 3) for number in range(9)] == [
        *(1, 0, 1, 0, 0, 2, 0, 1, 2)
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "names",
    [
        [("default", f"gang-{number}") for number in range(2000)],
        [(f"team-{number}", "train") for number in range(2000)],
        [(f"team-{number % 20}", f"job-{number:05d}") for number in range(2000)],
    ],
    ids=["names", "namespaces", "both"],
)
def test_numbered_names_are_spread_evenly(names, count):
    """No shard has a fifth more or fewer names than the average."""
    sizes = [0] * count
    for namespace, name in names:
        sizes[place_of(namespace, name, count)] += 1

    assert min(sizes) > 0.8 * len(names) / count
    assert max(sizes) < 1.2 * len(names) / count


def owned(kind, labels):
    owner = {"kind": kind, "name": "owner", "uid": "u", "controller": True}
    return {"metadata": {"name": "x", "labels": labels, "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("cls", "body", "name"),
    [
        (JobSet, {"metadata": {"name": "js", "labels": {keys.JOBSET_NAME: "other"}}}, "js"),
        (Job, owned("JobSet", {keys.JOBSET_NAME: "label"}), "owner"),
        (Job, owned("CronJob", {keys.JOBSET_NAME: "label"}), "label"),
        (ConfigMap, {"metadata": {"name": "x", "labels": {keys.JOBSET_NAME: "label"}}}, "label"),
        (ConfigMap, {"metadata": {"name": "x"}}, ""),
        (ChildPod, owned("Job", {keys.JOBSET_NAME: "label"}), "label"),
        (ChildPod, owned("Job", {}), ""),
    ],
)
def test_jobset_name_of_an_object(cls, body, name):
    """A JobSet's own name, a pod's label, another object's owner, or else its label."""
    assert jobset_name_of(cls)(decoded(cls, body).metadata) == name


def test_an_object_is_in_every_shard_when_it_belongs_to_no_jobset():
    """An object without a JobSet must not be lost."""
    shards = [KeyedShard(Assignment(3, index), lambda _: "") for index in range(3)]
    metadata = decoded(ConfigMap, {"metadata": {"name": "x"}}).metadata

    assert [shard.holds(metadata) for shard in shards] == [True] * 3


def test_nothing_is_dropped_before_the_shard_is_known():
    """An informer that runs too early fails, instead of taking all objects for those of others."""
    shard = KeyedShard(Assignment(2), jobset_name_of(JobSet))
    with pytest.raises(RuntimeError, match="before the shard is known"):
        shard.holds(decoded(JobSet, {"metadata": {"name": "x"}}).metadata)


def test_only_metadata_is_decoded_of_pods_of_other_shards():
    """Each shard fully decodes only its own pods; deleted and unreadable objects are not lost."""
    bodies = [
        make_pod(f"p{number}").labels({keys.JOBSET_NAME: f"js-{number}"}).build()
        for number in range(20)
    ]
    decoder, counts = msgspec.json.Decoder(ChildPod), []
    for index in range(2):
        decoded_whole = []

        def decode(raw, whole=decoded_whole):
            whole.append(raw)
            return decoder.decode(raw)

        shard = KeyedShard(Assignment(2, index), jobset_name_of(ChildPod), peek(ChildPod))
        machine = WatchMachine(decode, options=WatchOptions(shard=shard))
        machine.on_page([], "1", "")
        machine.on_opened(0.0)
        frames = []
        for number, body in enumerate(bodies):
            meta = {**body["metadata"], "resourceVersion": str(number + 2), "uid": str(number)}
            frames.append(WatchFrame("ADDED", raw_of({**body, "metadata": meta})))
        events = machine.on_frames(frames, 1.0)
        applied = {event.obj.metadata.name for event in events if isinstance(event, Applied)}
        assert applied == {
            f"p{number}" for number in range(20) if place_of("default", f"js-{number}", 2) == index
        }
        assert machine.resource_version == "21"
        counts.append(len(decoded_whole))
        assert shard.foreign(raw_of({"metadata": {"name": 7}})) is None
        assert shard.foreign(msgspec.Raw(b"{")) is None
    assert sum(counts) == 20
    assert 0 not in counts


def raw_of(body):
    return msgspec.Raw(msgspec.json.encode(body))


@pytest.mark.looptime
async def test_an_object_moves_to_another_shard_when_its_label_changes():
    """It is deleted from one shard and added to the other; changes of other shards are not reported."""
    mine, other = (
        next(name for name in "abcdefghij" if place_of("default", name, 2) == index)
        for index in range(2)
    )
    world = World()

    def labelled(name, jobset):
        return make_pod(name).labels({keys.JOBSET_NAME: jobset}).build()

    for name, jobset in (("p", mine), ("q", other)):
        world.create("pods", labelled(name, jobset))
    client, handlers = Client(world.transport()), [HandlerLog(), HandlerLog()]
    informers = [
        SharedInformer(
            client, ChildPod, WatchOptions(shard=KeyedShard(Assignment(2, index), jobset_name_of(ChildPod)))
        )
        for index in range(2)
    ]  # fmt: skip
    async with supervise() as tasks:
        for informer, handler in zip(informers, handlers, strict=True):
            informer.add_handler(handler)
            tasks.start(informer.run(), name="informer")
            await informer.wait_for_sync()
        world.patch("pods", "p", {"metadata": {"annotations": {"x": "y"}}})
        await asyncio.sleep(1)
        world.patch("pods", "p", {"metadata": {"labels": {keys.JOBSET_NAME: other}}})
        await asyncio.sleep(1)
        world.patch("pods", "q", {"metadata": {"annotations": {"x": "y"}}})
        await asyncio.sleep(1)

    assert handlers[0].calls == [("add", "p", True), ("update", "p"), ("delete", "p")]
    assert handlers[1].calls == [("add", "q", True), ("add", "p", False), ("update", "q")]
