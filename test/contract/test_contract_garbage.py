"""Contract: effect of owner references on the garbage collector."""

from support.contract_kit import Api, reference
from support.patience import eventually


async def gone(api: Api, *names: str) -> None:
    async def all_gone() -> bool:
        return {(await api.get(f"{api.configmaps}/{name}")).status for name in names} == {404}

    await eventually(all_gone, 20, poll_s=0.05)


async def test_background(collecting: Api) -> None:
    """Dependents of dependents are deleted after their owner."""
    api = collecting
    owner = await api.make("owner")
    child = await api.make("child", ownerReferences=[reference(owner.body)])
    await api.make("grandchild", ownerReferences=[reference(child.body)])

    done = await api.delete(f"{api.configmaps}/owner", propagationPolicy="Background")

    assert done.status == 200
    await gone(api, "owner", "child", "grandchild")


async def test_foreground_waits_for_dependents(collecting: Api) -> None:
    """The owner stays, marked, until its dependents are gone."""
    api = collecting
    owner = await api.make("owner")
    refs = [reference(owner.body)]
    await api.make("child", ownerReferences=refs, finalizers=["example.com/hold"])

    await api.delete(f"{api.configmaps}/owner", propagationPolicy="Foreground")

    async def marked() -> bool:
        return "deletionTimestamp" in (await api.get(f"{api.configmaps}/child")).meta

    await eventually(marked, 20, poll_s=0.05)
    waiting = await api.get(f"{api.configmaps}/owner")
    assert waiting.meta["finalizers"] == ["foregroundDeletion"]
    await api.merge(f"{api.configmaps}/child", {"metadata": {"finalizers": None}})
    await gone(api, "owner", "child")


async def test_foreground_does_not_wait_for_dependents_that_do_not_block(collecting: Api) -> None:
    """A dependent without blockOwnerDeletion is deleted, but the owner does not wait for it."""
    api = collecting
    owner = await api.make("owner")
    refs = [reference(owner.body, block=False)]
    await api.make("child", ownerReferences=refs, finalizers=["example.com/hold"])

    await api.delete(f"{api.configmaps}/owner", propagationPolicy="Foreground")

    await gone(api, "owner")
    await api.merge(f"{api.configmaps}/child", {"metadata": {"finalizers": None}})
    await gone(api, "child")


async def test_orphan(collecting: Api) -> None:
    """Orphans stay and lose their reference."""
    api = collecting
    owner = await api.make("owner")
    await api.make("child", ownerReferences=[reference(owner.body)])

    await api.delete(f"{api.configmaps}/owner", propagationPolicy="Orphan")

    await gone(api, "owner")
    assert "ownerReferences" not in (await api.get(f"{api.configmaps}/child")).meta


async def test_one_living_owner_is_enough(collecting: Api) -> None:
    """A dependent with two owners loses the reference to the deleted one only."""
    api = collecting
    one, two = await api.make("one"), await api.make("two")
    refs = [reference(one.body), reference(two.body)]
    await api.make("child", ownerReferences=refs)

    await api.delete(f"{api.configmaps}/one", propagationPolicy="Background")

    async def left() -> bool:
        child = await api.get(f"{api.configmaps}/child")
        return [ref["name"] for ref in child.meta["ownerReferences"]] == ["two"]

    assert await eventually(left, 20, poll_s=0.05)


async def test_dependent_of_a_deleted_owner_is_deleted(collecting: Api) -> None:
    """An object whose owner does not exist at its creation is deleted, too."""
    api = collecting
    owner = await api.make("owner")
    await api.delete(f"{api.configmaps}/owner")

    await api.make("child", ownerReferences=[reference(owner.body)])

    await gone(api, "child")


async def test_owner_of_another_uid_is_no_owner(collecting: Api) -> None:
    """A new object with the owner's name does not keep the old one's dependents."""

    api = collecting
    owner = await api.make("owner", finalizers=["example.com/hold"])
    child = await api.make("child", ownerReferences=[reference(owner.body)])
    path = f"{api.configmaps}/owner"
    await api.delete(path)
    await api.merge(path, {"metadata": {"finalizers": None}})

    await api.make("owner")

    await gone(api, "child")
    assert child.status == 201
