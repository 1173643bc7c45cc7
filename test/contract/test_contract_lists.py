"""Contract: lists, pages, resource versions and selectors."""

import base64
import json

import pytest

from support.contract_kit import Api, pod
from support.patience import eventually


async def test_list(api: Api) -> None:
    """A list has a kind, a version, and the objects by name."""
    for name in ("b", "a", "c"):
        last = await api.make(name, labels={"mine": "1"})

    found = await api.get(api.configmaps, labelSelector="mine")

    assert (found.body["kind"], found.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert found.names == ["a", "b", "c"]
    assert int(found.version) >= int(last.version)
    assert "kind" not in found.body["items"][0]


async def test_list_of_a_custom_kind(api: Api) -> None:
    """Items of a custom kind have their kind."""
    await api.make_widget("a")

    found = await api.get(api.widgets)

    assert found.body["kind"] == "WidgetList"
    assert found.body["items"][0]["kind"] == "Widget"


async def test_list_over_all_namespaces(api: Api) -> None:
    """Without a namespace the objects of all are listed."""
    await api.make_widget("a")

    found = await api.get("/apis/contract.example.com/v1/widgets")

    assert api.ns in {item["metadata"]["namespace"] for item in found.body["items"]}


async def test_empty_list(api: Api) -> None:
    """An empty list has items, and a version."""
    found = await api.get(api.pods)

    assert found.body["items"] == []
    assert int(found.version) > 0


async def test_pages_are_one_snapshot(api: Api) -> None:
    """Pages show the state of the first one, with any changes in between."""
    for name in "abcde":
        await api.make(name)
    skip = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}

    first = await api.get(api.configmaps, limit=2, **skip)
    await api.make("aa")
    await api.make("cc")
    await api.delete(f"{api.configmaps}/d")
    await api.merge(f"{api.configmaps}/e", {"data": {"new": "1"}})
    second = await api.get(api.configmaps, limit=2, continue_=first.meta["continue"], **skip)
    third = await api.get(api.configmaps, limit=2, continue_=second.meta["continue"], **skip)

    assert first.names + second.names + third.names == list("abcde")
    assert first.version == second.version == third.version
    assert not third.meta.get("continue")
    assert "data" not in third.body["items"][0]


async def test_limit_with_a_version(api: Api) -> None:
    """A list not older than a version is paged like any other."""
    made = [await api.make_pod(name) for name in "abc"]

    found = await api.get(
        api.pods, limit=2, resourceVersion=made[0].version, resourceVersionMatch="NotOlderThan"
    )

    assert found.names == ["a", "b"]
    assert found.meta["continue"]


@pytest.mark.parametrize("match", ["", "NotOlderThan"])
async def test_not_older_than(api: Api, match: str) -> None:
    """A version alone is a lower bound."""
    first = await api.make_pod("a")
    last = await api.make_pod("b")
    query = {"resourceVersionMatch": match} if match else {}

    found = await api.get(api.pods, resourceVersion=last.version, **query)

    assert found.names == ["a", "b"]
    assert int(found.version) >= int(last.version) > int(first.version)


@pytest.mark.parametrize("match", ["", "NotOlderThan"])
async def test_version_from_the_future(api: Api, match: str) -> None:
    """A version that does not exist yet times out, with a hint to try again."""
    query = {"resourceVersionMatch": match} if match else {}

    answer = await api.get(api.pods, resourceVersion="999999999", **query)

    assert answer.failure == (504, 504, "Timeout")
    assert answer.body["details"]["retryAfterSeconds"] == 1
    causes = [one["reason"] for one in answer.body["details"]["causes"]]
    assert causes == ["ResourceVersionTooLarge"]


def token(version: int, start: str) -> str:
    data = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{start}\0"})
    return base64.urlsafe_b64encode(data.encode()).rstrip(b"=").decode()


async def test_expired_page(api: Api) -> None:
    """A page of a forgotten version is 410 Expired."""
    for name in "abc":
        await api.make_pod(name)
    api.expire()

    async def gone() -> bool:
        return (await api.get(api.pods, limit=1, continue_=token(1, "a"))).status == 410

    await eventually(gone, 30, poll_s=0.25)
    answer = await api.get(api.pods, limit=1, continue_=token(1, "a"))

    assert answer.failure == (410, 410, "Expired")


@pytest.mark.parametrize(
    ("query", "failure"),
    [
        ({"labelSelector": "a==="}, (400, 400, "BadRequest")),
        ({"labelSelector": "a in b"}, (400, 400, "BadRequest")),
        ({"labelSelector": "a in (b"}, (400, 400, "BadRequest")),
        ({"labelSelector": ",a"}, (400, 400, "BadRequest")),
        ({"labelSelector": "a b"}, (400, 400, "BadRequest")),
        ({"fieldSelector": "data.k=v"}, (400, 400, "BadRequest")),
        ({"fieldSelector": "metadata.name"}, (400, 400, "BadRequest")),
    ],
)
async def test_bad_queries(api: Api, query: dict, failure: tuple) -> None:
    """Queries without a meaning are refused."""
    answer = await api.get(api.configmaps, **query)

    assert answer.failure == failure


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcd"),
        ("app=x", "a"),
        ("app==x", "a"),
        ("app!=x", "bcd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app in (x, y)", "ab"),
        ("app notin (x)", "bcd"),
        ("app in (x,y),tier", "a"),
        ("app,tier!=1", "bc"),
        ("app=", "c"),
        ("app in (x,)", "ac"),
        (" app = x , tier = 1 ", "a"),
        ("example.com/long-name_1=v.1", "d"),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: str) -> None:
    """Equality, sets, existence, and their conjunction."""
    await api.make_pod("a", labels={"app": "x", "tier": "1"})
    await api.make_pod("b", labels={"app": "y"})
    await api.make_pod("c", labels={"app": ""})
    await api.make_pod("d", labels={"example.com/long-name_1": "v.1"})

    found = await api.get(api.pods, labelSelector=selector)

    assert found.names == list(names)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "b"),
        ("status.phase=Running", "b"),
        ("status.phase==Pending", "a"),
        ("spec.nodeName=", "a"),
        ("spec.nodeName=node-1,status.phase=Running", "b"),
        ("spec.schedulerName=mine", "b"),
        ("spec.restartPolicy=Always", "ab"),
    ],
)
async def test_field_selectors_of_pods(api: Api, selector: str, names: str) -> None:
    """The fields by which pods can be selected."""
    await api.make_pod("a")
    other = pod("b")
    other["spec"] |= {"nodeName": "node-1", "schedulerName": "mine"}
    assert (await api.post(api.pods, other)).status == 201
    await api.merge(f"{api.pods}/b/status", {"status": {"phase": "Running"}})

    found = await api.get(api.pods, fieldSelector=selector)

    assert found.names == list(names)


async def test_field_selectors_of_other_kinds(api: Api) -> None:
    """Jobs by successes, events by their object, others by name and namespace."""
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    for name in "ab":
        body = {"metadata": {"name": name}, "spec": {"template": template}}
        assert (await api.post(api.jobs, body)).status == 201
    await api.merge(f"{api.jobs}/a/status", {"status": {"succeeded": 1}})
    events = f"/apis/events.k8s.io/v1/namespaces/{api.ns}/events"
    for name, reason in (("a", "Made"), ("b", "Gone")):
        event = {
            "metadata": {"name": name},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "contract",
            "reportingInstance": "contract-0",
            "action": "Test",
            "reason": reason,
            "type": "Normal",
            "regarding": {"kind": "Pod", "name": f"pod-{name}", "namespace": api.ns},
        }
        made = await api.post(events, event)
        assert made.status == 201, made.body
    await api.make_widget("a")

    async def names(path: str, selector: str) -> list[str]:
        return (await api.get(path, fieldSelector=selector)).names

    assert await names(api.jobs, "status.successful=1") == ["a"]
    assert await names(api.jobs, "status.successful=0") == ["b"]
    assert await names(events, "regarding.name=pod-b") == ["b"]
    assert await names(events, "reason=Made,regarding.kind=Pod") == ["a"]
    assert await names(api.widgets, f"metadata.namespace={api.ns}") == ["a"]
    assert await names(api.widgets, "metadata.name=b") == []


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("pods", "spec.hostname"),
        ("jobs", "status.failed"),
        ("configmaps", "data.k"),
        ("widgets", "spec.size"),
    ],
)
async def test_unsupported_fields(api: Api, kind: str, field: str) -> None:
    """Another field is 400, with a message that names it."""
    answer = await api.get(getattr(api, kind), fieldSelector=f"{field}=1")

    assert answer.failure == (400, 400, "BadRequest")
    assert field in answer.body["message"]
