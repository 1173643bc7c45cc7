"""Edge cases of the store's contract; its content is checked against a model elsewhere."""

from __future__ import annotations

import sys

import pytest

from jobsetpy.api.child_pod import ChildPod, ChildPodMeta
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey, ObjectMeta, OwnerReference
from jobsetpy.errors import (
    AlreadyStartedError,
    IndexConflictError,
    NotSyncedError,
    UnknownIndexError,
)
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, Index, StoreWriter

KEY = ObjectKey("ns", "a")


def pod(name="a", version="1", uid="u", namespace="ns"):
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version)
    )


READS_OF_INDEXES = [
    lambda store: store.by_index(OWNER_UID, "x"),
    lambda store: store.index_keys(OWNER_UID, "x"),
    lambda store: store.index_count(OWNER_UID, "x"),
    lambda store: store.index_values(OWNER_UID),
]


@pytest.mark.parametrize(
    "read", [lambda store: store.get(KEY), lambda store: store.list(), *READS_OF_INDEXES]
)
def test_reads_before_the_first_list_are_refused(read):
    """An unsynced store is not an empty one."""
    writer = StoreWriter(Pod, indexes=[OWNER_UID])
    writer.apply(pod())

    with pytest.raises(NotSyncedError, match="Pod"):
        read(writer.store)


@pytest.mark.parametrize(
    "read",
    [
        *READS_OF_INDEXES,
        lambda store: store.by_index("nonsense", "x"),
        lambda store: store.require(OWNER_UID),
    ],
)
def test_undeclared_indexes_are_refused_even_before_sync(read):
    """Reading an undeclared index fails immediately, not at the first event."""
    store = StoreWriter(Pod).store

    with pytest.raises(UnknownIndexError):
        read(store)


def test_state_can_be_read_before_the_sync():
    """Size, state and version can be read at any time."""
    writer = StoreWriter("Pod", indexes=[OWNER_UID])
    store = writer.store
    store.require(OWNER_UID)

    assert len(store) == 0
    assert store
    assert not store.has_synced
    assert store.resource_version == ""
    assert repr(store) == "<Store of Pod: 0 objects, not synced>"
    writer.mark_synced("7")
    assert store.has_synced
    assert store.resource_version == "7"
    assert store.name == "Pod"


def test_another_function_under_a_name_is_a_conflict():
    """A name belongs to one function."""
    writer = StoreWriter(Pod, indexes=[OWNER_UID])

    with pytest.raises(IndexConflictError):
        writer.declare(Index(OWNER_UID.name, lambda pod: ()))


def test_declaring_late_is_refused():
    """A filled store takes no new indexes: they would be incomplete."""
    writer = StoreWriter(Pod)
    writer.replace([], "1")

    with pytest.raises(AlreadyStartedError):
        writer.declare(OWNER_UID)


def test_owner_index_takes_the_controller_of_any_class():
    """The owner index finds the managing owner, also of other classes with owner references."""
    references = OwnerReference(uid="other"), OwnerReference(uid="mine", controller=True)
    writer = StoreWriter(ChildPod, indexes=[OWNER_UID])
    one = ChildPod(metadata=ChildPodMeta(name="a", owner_references=references))
    writer.replace([one, ChildPod(metadata=ChildPodMeta(name="b"))], "1")

    assert [one] == writer.store.by_index(OWNER_UID, "mine")
    assert writer.store.by_index(OWNER_UID, "other") == []
    assert writer.store.index_values(OWNER_UID) == ["mine"]


def test_objects_without_a_version_always_count_as_changed():
    """Without resourceVersion a new list cannot tell whether an object has changed."""
    writer = StoreWriter(Pod)
    writer.replace([pod(version="")], "1")

    assert len(writer.replace([pod(version="")], "2").updated) == 1


def test_staging_is_invisible_until_committed():
    """An unfinished list changes nothing; a list that starts over discards the unfinished one."""
    writer = StoreWriter(Pod)
    writer.replace([pod("a")], "1")
    writer.begin()
    writer.stage(pod("b"))
    writer.begin()
    writer.stage(pod("c"))
    writer.stage(pod("d"))
    writer.unstage(ObjectKey("ns", "d"))
    writer.unstage(ObjectKey("ns", "missing"))
    assert writer.staging
    assert [one.metadata.name for one in writer.store.list()] == ["a"]

    writer.commit("2")

    assert not writer.staging
    assert [one.metadata.name for one in writer.store.list()] == ["c"]


def test_first_list_is_indexed_page_by_page():
    """Indexes are filled while pages arrive, so that the commit itself does little work."""
    indexed = []
    index = Index("name", lambda pod: indexed.append(pod.metadata.name) or (pod.metadata.name,))
    writer = StoreWriter(Pod, indexes=[index])
    writer.begin()
    for number in range(3):
        writer.stage(pod(f"p{number}"))
    before = len(indexed)
    diff = writer.commit("9")

    assert before == len(indexed) == 3
    assert [each.metadata.name for each in diff.added] == ["p0", "p1", "p2"]
    assert writer.store.by_index(index, "p1")


def test_unfinished_first_list_is_discarded_when_it_begins_again():
    """Objects that only the unfinished list had are neither stored nor reported."""
    writer = StoreWriter(Pod, indexes=[BY_NAMESPACE])
    writer.begin()
    writer.stage(pod("gone"))
    writer.stage(pod("kept"))
    writer.begin()
    writer.stage(pod("kept"))
    writer.stage(pod("streamed"))
    writer.unstage(pod("streamed").metadata)
    diff = writer.commit("9")

    assert [each.metadata.name for each in diff.added] == ["kept"]
    assert not diff.deleted
    assert writer.store.list() == writer.store.by_index(BY_NAMESPACE, "ns") == [*diff.added]


def test_equal_versions_count_as_changed_when_the_list_is_rewound():
    """In another history of etcd a version may belong to another state."""
    writer = StoreWriter(Pod)
    writer.replace([pod()], "1")
    held, again = writer.store.get(KEY), pod()
    writer.begin(rewound=True)
    writer.stage(again)

    assert writer.commit("1").updated == ((held, again),)
    assert writer.store.get(KEY) is again


def test_a_list_keeps_stored_objects_of_the_same_version():
    """A new list does not hold a second copy of an unchanged object."""
    writer = StoreWriter(Pod)
    writer.replace([pod()], "1")
    held, again = writer.store.get(KEY), pod()
    references = sys.getrefcount(again)
    writer.begin()
    writer.stage(again)

    assert sys.getrefcount(again) == references
    assert not writer.commit("2").updated
    assert writer.store.get(KEY) is held
