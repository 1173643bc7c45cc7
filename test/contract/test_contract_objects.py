"""Contract: create, read and replace; versions, generations and the status subresource."""

import asyncio
from typing import Any

import pytest

from support.contract_kit import Answer, Api, config_map, pod, widget


async def test_create_answers_with_the_stored_object(api: Api) -> None:
    """A create sets uid, version, time, namespace and kind, and answers 201."""
    made = await api.post(api.configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})

    assert made.status == 201
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")
    assert made.meta["namespace"] == api.ns
    assert {"uid", "resourceVersion", "creationTimestamp"} <= made.meta.keys()
    assert "generation" not in made.meta
    assert (await api.get(f"{api.configmaps}/a")).body == made.body


async def test_create_of_a_taken_name_is_refused(api: Api) -> None:
    """A second create of one name is 409 AlreadyExists and names the object."""
    await api.make("a")

    again = await api.post(api.configmaps, {"metadata": {"name": "a"}})

    assert again.failure == (409, 409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_custom_kinds_name_their_group_in_failures(api: Api) -> None:
    """Messages and details of a custom kind carry its group."""
    missing = await api.get(f"{api.widgets}/a")

    assert missing.failure == (404, 404, "NotFound")
    assert missing.body["message"] == 'widgets.contract.example.com "a" not found'
    expected = {"name": "a", "group": "contract.example.com", "kind": "widgets"}
    assert missing.body["details"] == expected


async def test_missing_object_is_a_status(api: Api) -> None:
    """A GET of a missing object is a complete Status object."""
    missing = await api.get(f"{api.configmaps}/nope")

    assert missing.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "nope" not found',
        "reason": "NotFound",
        "details": {"name": "nope", "kind": "configmaps"},
        "code": 404,
    }


async def test_create_in_an_unknown_namespace(api: Api) -> None:
    """The missing namespace is the object that is not found."""
    answer = await api.post("/api/v1/namespaces/not-there/configmaps", {"metadata": {"name": "a"}})

    assert answer.failure == (404, 404, "NotFound")
    assert answer.body["details"] == {"name": "not-there", "kind": "namespaces"}


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"metadata": {"name": "a", "namespace": "other"}}, (400, 400, "BadRequest")),
        ({"metadata": {}}, (422, 422, "Invalid")),
        ({"metadata": {"name": "A_b"}}, (422, 422, "Invalid")),
        ({"metadata": {"name": "a", "resourceVersion": "5"}}, (500, 500, None)),
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}, (400, 400, "BadRequest")),
        (b"{nope", (400, 400, "BadRequest")),
    ],
    ids=["namespace", "no-name", "bad-name", "version", "kind", "no-json"],
)
async def test_bad_creates_are_refused(api: Api, body: object, failure: tuple) -> None:
    """A create that contradicts its URL, or has no valid name, is refused."""
    answer = await api.call("POST", api.configmaps, body)

    assert answer.failure == failure


async def test_custom_objects_must_have_a_kind(api: Api) -> None:
    """The kind may be missing for built-in kinds, but not for custom ones."""
    answer = await api.post(api.widgets, {"metadata": {"name": "a"}})

    assert answer.failure == (400, 400, "BadRequest")


async def test_generated_names(api: Api) -> None:
    """A generateName gets five characters, different each time."""
    one = await api.post(api.configmaps, {"metadata": {"generateName": "gen-"}})
    two = await api.post(api.configmaps, {"metadata": {"generateName": "gen-"}})

    assert one.status == two.status == 201
    assert one.meta["name"] != two.meta["name"]
    assert one.meta["name"].startswith("gen-")
    assert len(one.meta["name"]) == len("gen-") + 5
    assert one.meta["generateName"] == "gen-"


async def test_versions_grow_and_are_shared_by_all_kinds(api: Api) -> None:
    """Each write gets a higher resourceVersion than all before, of any kind."""
    versions = [
        (await api.make("a")).version,
        (await api.make_pod("a")).version,
        (await api.make("b")).version,
    ]

    assert sorted(map(int, versions)) == list(map(int, versions))
    assert len(set(versions)) == 3


async def test_replace(api: Api) -> None:
    """A PUT with the current version stores the new content under a new version."""
    made = await api.make("a", data={"k": "1"})
    body = config_map("a", data={"k": "2"})
    body["metadata"]["resourceVersion"] = made.version

    done = await api.put(f"{api.configmaps}/a", body)

    assert done.status == 200
    assert done.body["data"] == {"k": "2"}
    assert int(done.version) > int(made.version)
    assert done.meta["uid"] == made.meta["uid"]
    assert done.meta["creationTimestamp"] == made.meta["creationTimestamp"]


async def test_replace_with_an_old_version_conflicts(api: Api) -> None:
    """A PUT with another version than the stored one is 409 Conflict."""
    made = await api.make("a", data={"k": "1"})
    await api.merge(f"{api.configmaps}/a", {"data": {"k": "2"}})

    answer = await api.put(f"{api.configmaps}/a", {**made.body, "data": {"k": "3"}})

    assert answer.failure == (409, 409, "Conflict")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}
    assert "the object has been modified" in answer.body["message"]


async def test_replace_without_a_version(api: Api) -> None:
    """A PUT without version is accepted for config maps, refused for custom kinds and leases."""
    await api.make("a", data={"k": "1"})
    await api.make_widget("a", spec={"size": 1})
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
    assert (await api.post(api.leases, lease)).status == 201

    done = await api.put(f"{api.configmaps}/a", config_map("a", data={"k": "2"}))
    custom = await api.put(f"{api.widgets}/a", widget("a", spec={"size": 2}))
    leased = await api.put(f"{api.leases}/a", lease)

    assert done.status == 200
    for refused in (custom, leased):
        assert refused.failure == (422, 422, "Invalid")
        assert refused.causes == [("FieldValueInvalid", "metadata.resourceVersion")]


async def test_replace_with_another_uid_conflicts(api: Api) -> None:
    """A PUT with another uid is meant for another object."""
    await api.make("a")
    body = config_map("a")
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"

    answer = await api.put(f"{api.configmaps}/a", body)

    assert answer.failure == (409, 409, "Conflict")


@pytest.mark.parametrize(
    ("meta", "failure"),
    [
        ({"name": "b"}, (400, 400, "BadRequest")),
        ({"name": "a", "namespace": "other"}, (400, 400, "BadRequest")),
        ({}, (400, 400, "BadRequest")),
    ],
    ids=["name", "namespace", "no-name"],
)
async def test_replace_must_fit_its_url(api: Api, meta: dict, failure: tuple) -> None:
    """A PUT whose body names another object than its URL is refused."""
    await api.make("a")

    answer = await api.put(f"{api.configmaps}/a", {"metadata": meta})

    assert answer.failure == failure


async def test_replace_of_nothing(api: Api) -> None:
    """A PUT to a free name is 404."""
    missing = await api.put(f"{api.configmaps}/a", config_map("a"))

    assert missing.failure == (404, 404, "NotFound")


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api) -> None:
    """PUT and PATCH of the stored content cause no new version and no event."""
    made = await api.make("a", data={"k": "1"})

    put = await api.put(f"{api.configmaps}/a", made.body)
    patched = await api.merge(f"{api.configmaps}/a", {"data": {"k": "1"}})

    assert put.version == patched.version == made.version


async def test_fields_of_the_server_are_ignored_in_a_create(api: Api) -> None:
    """Creation time, uid and generation of the body are not stored."""
    given = {
        "name": "a",
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "generation": 7,
        "deletionTimestamp": "2001-01-01T00:00:00Z",
    }

    made = await api.post(api.widgets, widget("a", given, spec={"size": 1}))

    assert made.status == 201
    assert made.meta["uid"] != given["uid"]
    assert made.meta["creationTimestamp"] > "2020"
    assert made.meta["generation"] == 1
    assert "deletionTimestamp" not in made.meta


async def test_generation_counts_changes_of_the_spec(api: Api) -> None:
    """Changes of the spec increment the generation; labels and status do not."""
    path = f"{api.widgets}/a"
    made = await api.make_widget("a", spec={"size": 1})

    labelled = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    status = await api.merge(f"{path}/status", {"status": {"ready": 1}})
    changed = await api.merge(path, {"spec": {"size": 2}})

    assert [x.meta["generation"] for x in (made, labelled, status, changed)] == [1, 1, 1, 2]


async def test_status_is_a_resource_of_its_own(api: Api) -> None:
    """The main resource cannot write status, and /status cannot write the spec or metadata."""
    path = f"{api.widgets}/a"
    made = await api.make_widget("a", spec={"size": 1}, status={"ready": 5})
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 2}, "status": {"ready": 1}}

    status = await api.merge(f"{path}/status", change)
    main = await api.merge(path, {**change, "status": {"ready": 9}})
    read = await api.get(f"{path}/status")

    assert "status" not in made.body
    assert (status.body["spec"], status.body["status"]) == ({"size": 1}, {"ready": 1})
    assert "labels" not in status.meta
    assert (main.body["spec"], main.body["status"]) == ({"size": 2}, {"ready": 1})
    assert main.meta["labels"] == {"a": "b"}
    assert read.body == main.body


async def test_status_of_a_pod(api: Api) -> None:
    """A pod starts as Pending; /status changes status and labels, not the spec."""
    made = await api.post(api.pods, {**pod("a"), "status": {"phase": "Running"}})
    change = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }

    done = await api.merge(f"{api.pods}/a/status", change)
    main = await api.merge(f"{api.pods}/a", {"status": {"phase": "Failed"}})

    assert made.body["status"]["phase"] == "Pending"
    assert done.body["status"]["phase"] == "Running"
    assert done.meta["labels"] == {"a": "b"}
    assert done.meta["annotations"] == {"c": "d"}
    assert "nodeName" not in done.body["spec"]
    assert main.body["status"]["phase"] == "Running"
    assert main.version == done.version


async def test_replace_of_a_status(api: Api) -> None:
    """A PUT to /status needs the version, too, and replaces the status only."""
    made = await api.make_widget("a", spec={"size": 1})
    path = f"{api.widgets}/a/status"

    done = await api.put(path, {**made.body, "spec": {"size": 9}, "status": {"ready": 1}})
    stale = await api.put(path, {**made.body, "status": {"ready": 2}})

    assert done.status == 200
    assert (done.body["spec"], done.body["status"]) == ({"size": 1}, {"ready": 1})
    assert stale.failure == (409, 409, "Conflict")


async def test_defaults_that_controllers_rely_on(api: Api) -> None:
    """Pods get a scheduler and a restart policy, Jobs a selector and counts."""
    made = await api.make_pod("a")
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    job = await api.post(api.jobs, {"metadata": {"name": "a"}, "spec": {"template": template}})

    assert made.body["spec"]["schedulerName"] == "default-scheduler"
    assert made.body["spec"]["restartPolicy"] == "Always"
    assert made.meta["generation"] == 1
    spec = job.body["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"]) == ("NonIndexed", False)
    uid = job.meta["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
    assert job.body["status"] == {}


async def test_dry_run_changes_nothing(api: Api) -> None:
    """With dryRun=All the response is as usual, and the store does not change."""
    made = await api.make("a", data={"k": "1"})
    path = f"{api.configmaps}/a"

    created = await api.post(api.configmaps, config_map("b"), dryRun="All")
    patched = await api.merge(path, {"data": {"k": "2"}}, dryRun="All")
    deleted = await api.delete(path, dryRun="All")

    assert created.status == 201
    assert patched.body["data"] == {"k": "2"}
    assert deleted.status == 200
    assert (await api.get(f"{api.configmaps}/b")).status == 404
    assert (await api.get(path)).body == made.body


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/a"), ("PUT", ""), ("PATCH", "")], ids=["POST", "PUT", "PATCH"]
)
async def test_methods_that_do_not_fit(api: Api, method: str, path: str) -> None:
    """A method that a path does not support is 405."""
    answer = await api.call(method, f"{api.configmaps}{path}", {})

    assert answer.failure == (405, 405, "MethodNotAllowed")


async def test_media_types(api: Api) -> None:
    """A body or patch of an unknown type is 415."""
    await api.make("a")

    created = await api.call("POST", api.configmaps, {}, "text/plain")
    patched = await api.call("PATCH", f"{api.configmaps}/a", {}, "application/json")

    assert created.failure == (415, 415, "UnsupportedMediaType")
    assert patched.failure == (415, 415, "UnsupportedMediaType")


async def test_pod_binding(api: Api) -> None:
    """A binding assigns a node to a pod, once."""
    await api.make_pod("a")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "node-1"},
    }

    bound = await api.post(f"{api.pods}/a/binding", body)
    again = await api.post(f"{api.pods}/a/binding", body)
    read = await api.get(f"{api.pods}/a")

    assert (bound.status, bound.body["status"]) == (201, "Success")
    assert again.failure == (409, 409, "Conflict")
    assert read.body["spec"]["nodeName"] == "node-1"


async def test_concurrent_replaces_have_one_winner(api: Api) -> None:
    """Exactly one of several concurrent PUTs with the same version is stored."""
    made = await api.make("a")
    path = f"{api.configmaps}/a"
    answers = []

    async def write(number: int) -> None:
        answers.append(await api.put(path, {**made.body, "data": {"k": str(number)}}))

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(number))

    assert sorted(answer.status for answer in answers) == [200] + [409] * 7


async def test_kinds_that_surround_pods(api: Api) -> None:
    """Services, claims, secrets, service accounts, nodes and namespaces, as controllers see them."""
    base = f"/api/v1/namespaces/{api.ns}"
    storage = {"requests": {"storage": "1Gi"}}

    async def create(plural: str, **fields: Any) -> Answer:
        return await api.post(f"{base}/{plural}", {"metadata": {"name": "a"}, **fields})

    service = await create("services", spec={"clusterIP": "None", "ports": [{"port": 80}]})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": storage}
    claim = await create("persistentvolumeclaims", spec=spec)
    secret = await create("secrets", data={"k": "dg=="})
    account = await create("serviceaccounts")
    namespace = await api.get(base)

    assert service.body["spec"]["type"] == "ClusterIP"
    assert service.body["spec"]["clusterIP"] == "None"
    assert service.body["status"] == {"loadBalancer": {}}
    assert claim.body["status"] == {"phase": "Pending"}
    assert (secret.body["type"], secret.body["data"]) == ("Opaque", {"k": "dg=="})
    assert account.status == 201
    assert namespace.body["status"] == {"phase": "Active"}
    assert namespace.meta["labels"]["kubernetes.io/metadata.name"] == api.ns
    assert "namespace" not in namespace.meta


async def test_nodes_keep_the_status_they_are_created_with(api: Api) -> None:
    """A kubelet registers a node with its status; the node has no namespace."""
    name = f"node-{api.ns}"
    path = f"/api/v1/nodes/{name}"
    body = {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}}

    made = await api.post("/api/v1/nodes", body)
    taint = {"key": "example.com/t", "effect": "NoSchedule"}
    tainted = await api.merge(path, {"spec": {"taints": [taint]}, "status": {"capacity": None}})
    deleted = await api.delete(path)

    assert made.body["status"]["capacity"]["cpu"] == "4"
    assert taint in tainted.body["spec"]["taints"]
    assert tainted.body["status"]["capacity"]["cpu"] == "4"
    assert deleted.status == 200


async def test_eviction(api: Api) -> None:
    """An eviction deletes a pod."""
    await api.make_pod("a")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}

    done = await api.post(f"{api.pods}/a/eviction", body)

    assert (done.status, done.body["status"]) == (201, "Success")
    assert (await api.get(f"{api.pods}/a")).status == 404
