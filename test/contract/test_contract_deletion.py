"""Contract: deletion, preconditions, finalizers, propagation."""

import pytest

from support.contract_kit import Api, brief, pod


async def test_delete(api: Api) -> None:
    """The object is gone after a deletion."""
    await api.make("a")

    done = await api.delete(f"{api.configmaps}/a")
    again = await api.delete(f"{api.configmaps}/a")

    assert done.status == 200
    assert again.failure == (404, 404, "NotFound")


async def test_delete_of_a_pod_answers_with_the_pod(api: Api) -> None:
    """A deletion is answered with the pod; a pod without a node is deleted immediately."""
    made = await api.make_pod("a")

    done = await api.delete(f"{api.pods}/a")

    assert (done.status, done.body["kind"]) == (200, "Pod")
    assert done.meta["uid"] == made.meta["uid"]
    assert (await api.get(f"{api.pods}/a")).status == 404


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_preconditions(api: Api, precondition: str) -> None:
    """A precondition that does not hold is 409 Conflict; one that holds has no effect."""
    made = await api.make("a")
    wrong = {"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "1"}

    path = f"{api.configmaps}/a"
    refused = await api.delete(path, {"preconditions": {precondition: wrong[precondition]}})
    done = await api.delete(path, {"preconditions": {precondition: made.meta[precondition]}})

    assert refused.failure == (409, 409, "Conflict")
    assert done.status == 200


async def test_preconditions_of_custom_kinds(api: Api) -> None:
    """The same for a custom kind, whose conflict names the object."""
    await api.make_widget("a")

    uid = "11111111-2222-3333-4444-555555555555"
    refused = await api.delete(f"{api.widgets}/a", {"preconditions": {"uid": uid}})

    assert refused.failure == (409, 409, "Conflict")
    assert refused.body["details"]["name"] == "a"


async def test_finalizers_hold_an_object(api: Api) -> None:
    """With a finalizer a DELETE only marks the object; removing it ends the object."""
    path = f"{api.configmaps}/a"
    await api.make("a", finalizers=["example.com/hold"])

    marked = await api.delete(path)
    again = await api.delete(path)
    freed = await api.merge(path, {"metadata": {"finalizers": None, "labels": {"last": "1"}}})

    assert (marked.status, marked.body["kind"]) == (200, "ConfigMap")
    assert "deletionTimestamp" in marked.meta
    assert marked.meta["deletionGracePeriodSeconds"] == 0
    assert again.version == marked.version
    assert (freed.status, freed.meta["labels"]) == (200, {"last": "1"})
    assert (await api.get(path)).status == 404


async def test_events_of_a_held_deletion(api: Api) -> None:
    """A watch reports the mark as MODIFIED and the end as DELETED, with growing versions."""
    path = f"{api.configmaps}/a"
    made = await api.make("a", finalizers=["example.com/hold"])

    async with api.watch(api.configmaps, resourceVersion=made.version) as events:
        await api.delete(path)
        await api.merge(path, {"metadata": {"finalizers": [], "labels": {"last": "1"}}})
        marked, gone = await events.next(), await events.next()

    assert [brief(marked), brief(gone)] == [("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(x["object"]["metadata"]["resourceVersion"]) for x in (marked, gone)]
    assert int(made.version) < versions[0] < versions[1]
    # The patch that removed the finalizer was never stored: the last state is the one before it.
    assert "labels" not in gone["object"]["metadata"]
    assert "deletionTimestamp" in gone["object"]["metadata"]


async def test_events_of_a_pod_deletion(api: Api) -> None:
    """A pod that is deleted immediately is still marked first; other kinds are not."""
    made = await api.make_pod("a")
    other = await api.make("b")

    async with api.watch(api.pods, resourceVersion=made.version) as events:
        done = await api.delete(f"{api.pods}/a")
        marked, gone = await events.next(), await events.next()
    async with api.watch(api.configmaps, resourceVersion=other.version) as events:
        await api.delete(f"{api.configmaps}/b")
        last = await events.next()

    assert [brief(marked), brief(gone)] == [("MODIFIED", "a"), ("DELETED", "a")]
    for event in (marked, gone):
        assert event["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
        assert event["object"]["metadata"]["generation"] == 2
    assert done.meta["generation"] == 2
    assert brief(last) == ("DELETED", "b")
    assert int(last["object"]["metadata"]["resourceVersion"]) > int(other.version)
    assert "deletionTimestamp" not in last["object"]["metadata"]


async def test_no_new_finalizers_on_a_deleted_object(api: Api) -> None:
    """An object that is being deleted accepts no further finalizer."""
    path = f"{api.configmaps}/a"
    await api.make("a", finalizers=["example.com/hold"])
    await api.delete(path)

    finalizers = ["example.com/hold", "example.com/more"]
    answer = await api.merge(path, {"metadata": {"finalizers": finalizers}})

    assert answer.failure == (422, 422, "Invalid")
    assert answer.causes == [("FieldValueForbidden", "metadata.finalizers")]


async def test_deletion_cannot_be_undone(api: Api) -> None:
    """A patch does not remove the deletion mark."""
    path = f"{api.configmaps}/a"
    await api.make("a", finalizers=["example.com/hold"])
    await api.delete(path)

    done = await api.merge(path, {"metadata": {"deletionTimestamp": None, "labels": {"x": "y"}}})

    assert done.status == 200
    assert "deletionTimestamp" in done.meta


async def test_generation_grows_with_the_deletion(api: Api) -> None:
    """The deletion mark counts as a new generation."""
    await api.make_widget("a", meta={"finalizers": ["example.com/hold"]}, spec={"size": 1})

    marked = await api.delete(f"{api.widgets}/a")

    assert marked.meta["generation"] == 2


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
async def test_policies_that_wait_for_the_collector(api: Api, policy: str, finalizer: str) -> None:
    """Foreground and Orphan mark the object with the garbage collector's finalizer."""
    await api.make("a", finalizers=["example.com/hold"])

    marked = await api.delete(f"{api.configmaps}/a", propagationPolicy=policy)

    assert marked.status == 200
    assert "deletionTimestamp" in marked.meta
    assert set(marked.meta["finalizers"]) == {finalizer, "example.com/hold"}


async def test_the_latest_policy_counts(api: Api) -> None:
    """Background after Foreground removes the collector's finalizer again."""
    path = f"{api.configmaps}/a"
    await api.make("a", finalizers=["example.com/hold"])
    await api.delete(path, propagationPolicy="Foreground")

    done = await api.delete(path, {"propagationPolicy": "Background"})

    assert done.meta["finalizers"] == ["example.com/hold"]


async def test_a_plain_delete_keeps_the_policy(api: Api) -> None:
    """A later DELETE without a policy keeps the collector's finalizer."""
    path = f"{api.configmaps}/a"
    await api.make("a", finalizers=["example.com/hold"])
    await api.delete(path, propagationPolicy="Foreground")

    done = await api.delete(path)

    assert set(done.meta["finalizers"]) == {"foregroundDeletion", "example.com/hold"}


async def test_invalid_policy_is_refused(api: Api) -> None:
    """An unknown policy is 422."""
    await api.make("a")

    answer = await api.delete(f"{api.configmaps}/a", {"propagationPolicy": "Sideways"})

    assert answer.failure == (422, 422, "Invalid")
    assert answer.causes == [("FieldValueNotSupported", "propagationPolicy")]


async def test_a_held_pod_is_marked(api: Api) -> None:
    """A pod with a finalizer is marked, with a new generation."""
    made = await api.post(api.pods, pod("a", finalizers=["example.com/hold"]))
    assert made.status == 201

    marked = await api.delete(f"{api.pods}/a", gracePeriodSeconds=0)

    assert "deletionTimestamp" in marked.meta
    assert marked.meta["generation"] == 2
    assert (await api.get(f"{api.pods}/a")).status == 200


async def test_a_new_object_of_the_name_has_a_new_uid(api: Api) -> None:
    """An object that was deleted and created again is another object."""
    first = await api.make("a")
    await api.delete(f"{api.configmaps}/a")

    second = await api.make("a")

    assert second.meta["uid"] != first.meta["uid"]


async def test_a_running_pod_has_time_to_end(api: Api) -> None:
    """A pod on a node is marked with its grace period; a DELETE with 0 ends it."""
    api.like_a_cluster()
    running = pod("a")
    running["spec"] |= {"nodeName": "node-1", "terminationGracePeriodSeconds": 7}
    assert (await api.post(api.pods, running)).status == 201
    path = f"{api.pods}/a"

    marked = await api.delete(path)
    again = await api.delete(path)
    shorter = await api.delete(path, gracePeriodSeconds=3)
    forced = await api.delete(path, gracePeriodSeconds=0)

    assert marked.meta["deletionGracePeriodSeconds"] == 7
    assert marked.meta["deletionTimestamp"] > marked.meta["creationTimestamp"]
    assert again.version == marked.version
    assert shorter.meta["deletionGracePeriodSeconds"] == 3
    assert forced.status == 200
    assert (await api.get(path)).status == 404


async def test_a_finished_pod_is_deleted_immediately(api: Api) -> None:
    """Only running pods have a grace period."""
    api.like_a_cluster()
    done = pod("a")
    done["spec"]["nodeName"] = "node-1"
    assert (await api.post(api.pods, done)).status == 201
    await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Succeeded"}})

    await api.delete(f"{api.pods}/a")

    assert (await api.get(f"{api.pods}/a")).status == 404
