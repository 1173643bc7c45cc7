"""An indexed store equals plain scans of a dict."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey, ObjectMeta, OwnerReference
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, Index, StoreWriter

NAMESPACES = ["x", "y"]
OWNERS = ["", "o1", "o2"]

BY_TAGS: Index[Pod] = Index("tags", lambda pod: pod.metadata.labels.get("tags", "").split())


@st.composite
def pods(draw):
    owner = draw(st.sampled_from(OWNERS))
    references = (OwnerReference(uid="other"),)
    if owner:
        references += (OwnerReference(uid=owner, controller=True),)
    return Pod(
        metadata=ObjectMeta(
            name=draw(st.sampled_from("abc")),
            namespace=draw(st.sampled_from(NAMESPACES)),
            uid=draw(st.sampled_from("12")),
            resource_version=draw(st.sampled_from("1234")),
            owner_references=references,
            labels={"tags": draw(st.sampled_from(["", "p", "p q", "q q"]))},
        )
    )


class StoreModel(RuleBasedStateMachine):
    """Changes of single objects and of the whole store in any order."""

    def __init__(self):
        super().__init__()
        self.writer = StoreWriter(Pod, indexes=[OWNER_UID, BY_NAMESPACE, BY_TAGS])
        self.store = self.writer.store
        self.model: dict[ObjectKey, Pod] = {}
        self.writer.mark_synced("0")

    @rule(pod=pods())
    def apply(self, pod):
        assert self.writer.apply(pod) is self.model.get(pod.metadata.key)
        self.model[pod.metadata.key] = pod

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from("abc"))
    def delete(self, namespace, name):
        key = ObjectKey(namespace, name)
        assert self.writer.delete(key) is self.model.pop(key, None)

    @rule(listed=st.lists(pods(), max_size=6))
    def replace(self, listed):
        before = dict(self.model)
        after = {pod.metadata.key: pod for pod in listed}
        diff = self.writer.replace(listed, "9")

        def life(pod):
            return pod.metadata.key, pod.metadata.uid

        lives_before = {life(pod): pod for pod in before.values()}
        lives_after = {life(pod): pod for pod in after.values()}
        gone = [lives_before[one] for one in lives_before.keys() - lives_after.keys()]
        new = [lives_after[one] for one in lives_after.keys() - lives_before.keys()]
        assert sorted(map(life, gone)) == sorted(map(life, diff.deleted))
        assert sorted(map(life, new)) == sorted(map(life, diff.added))
        changed = {
            one
            for one in lives_before.keys() & lives_after.keys()
            if lives_before[one].metadata.resource_version
            != lives_after[one].metadata.resource_version
        }
        assert changed == {life(pod) for _, pod in diff.updated}
        assert all(life(old) == life(now) for old, now in diff.updated)
        self.model = {
            key: before[key]
            if key in before and life(before[key]) == life(pod) and life(pod) not in changed
            else pod
            for key, pod in after.items()
        }

    @invariant()
    def objects_equal_the_model(self):
        assert len(self.model) == len(self.store)
        for key, pod in self.model.items():
            assert self.store.get(key) is pod
        for namespace in NAMESPACES:
            expected = {k: p for k, p in self.model.items() if k.namespace == namespace}
            listed = self.store.list(namespace)
            assert expected == {pod.metadata.key: pod for pod in listed}
            assert len(expected) == len(listed)

    @invariant()
    def indexes_equal_a_scan(self):
        for index in (OWNER_UID, BY_NAMESPACE, BY_TAGS):
            expected: dict[str, set[ObjectKey]] = {}
            for key, pod in self.model.items():
                for value in index.func(pod):
                    expected.setdefault(value, set()).add(key)
            assert set(expected) == set(self.store.index_values(index))
            for value, keys in expected.items():
                assert keys == self.store.index_keys(index, value)
                assert len(keys) == self.store.index_count(index, value)
                found = self.store.by_index(index, value)
                assert {id(self.model[key]) for key in keys} == {id(pod) for pod in found}


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=60, stateful_step_count=30)
