"""Answers to admission requests, with the fake API server and real stores."""

import asyncio
import copy

import pytest

from jobsetpy.admission import WebhookSettings
from jobsetpy.admission._handlers import (
    LEADERS,
    JobSetHandlers,
    PodHandlers,
    StoredAccount,
    StoredClaim,
    routes,
)
from jobsetpy.api import keys
from jobsetpy.api.core import LabelledNode, Namespace, Node
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import Store, StoreWriter
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.serving.review import ALLOWED, ReviewRequest
from jobsetpy.testing import FakeApiServer, json_patch
from support.admission import hostile
from support.jobsets import decoded

ZONE = "zone"
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def pod(name: str, index: str, **more) -> dict:
    annotations = {
        keys.JOBSET_NAME: "js",
        keys.COMPLETION_INDEX_ANNOTATION: index,
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: ZONE,
    }
    labels = {keys.JOBSET_NAME: "js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}
    owner = {"uid": "u1", "controller": True}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": annotations}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {}, **more}


@pytest.fixture
def handlers(stores):
    pods, nodes, jobs = stores
    return PodHandlers(pods=pods.store, nodes=nodes.store, jobs=jobs.store)


def create(obj, **more) -> ReviewRequest:
    return ReviewRequest("u", "CREATE", "ns", "", obj, **more)


async def test_follower_is_placed_in_the_domain_of_its_cached_leader(stores, handlers):
    """It is refused where its node has no such label."""
    pods, nodes, _ = stores
    follower = create(pod("js-w-0-1-x", "1"))
    leader = pod("js-w-0-0-x", "0", spec={"nodeName": "n"}, status={"phase": "Running"})
    pods.apply(decoded(ChildPod, leader))
    nodes.apply(decoded(Node, {"metadata": {"name": "n"}}))
    assert (await handlers.mutate(follower)).status["code"] == 403
    nodes.apply(decoded(Node, {"metadata": {"name": "n", "labels": {ZONE: "a"}}}))
    (operation,) = (await handlers.mutate(follower)).patch
    assert operation == {"op": "add", "path": "/spec/nodeSelector", "value": {ZONE: "a"}}
    placed = pod("js-w-0-1-x", "1", spec={"nodeSelector": {ZONE: "a"}})
    assert await handlers.validate(create(placed)) is ALLOWED
    other = ReviewRequest("u", "CREATE", "other", "", placed)
    assert (await handlers.validate(other)).status["code"] == 403  # leaders are per namespace


@pytest.mark.parametrize("handler", ["mutate", "validate"])
async def test_loop_continues_when_a_large_jobset_is_changed(handler):
    """An object of 1.5 MB takes 100 ms or more; other requests are answered in between."""
    old = hostile.many_replicated_jobs(6000)
    new = copy.deepcopy(old)
    old["spec"]["suspend"] = True
    for job in new["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    handlers = JobSetHandlers(FakeApiServer().client())
    request = ReviewRequest("u", "UPDATE", "ns", "", new, old)
    handling = asyncio.ensure_future(getattr(handlers, handler)(request))
    turns = 0
    while not handling.done():
        await asyncio.sleep(0)
        turns += 1

    assert handling.result() == ALLOWED
    assert turns > 20


async def test_only_exclusive_leaders_are_indexed():
    """Followers, other pods and pods of other JobSets are not."""
    plain = pod("js-w-0-0-x", "0")
    del plain["metadata"]["annotations"][keys.EXCLUSIVE_TOPOLOGY_ANNOTATION]
    given = [pod("js-w-0-0-x", "0"), pod("js-w-0-1-x", "1"), pod("short-0", "0"), plain]
    keys_of = [list(LEADERS.func(decoded(ChildPod, obj))) for obj in given]
    assert keys_of == [["ns/js-w-0-0"], [], [], []]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
async def test_other_operations_are_allowed(handlers, operation):
    """Only requests that the configurations select are validated."""
    request = ReviewRequest("u", operation, "ns", "", {})
    assert await handlers.mutate(request) is ALLOWED
    assert await handlers.validate(request) is ALLOWED


async def test_jobsets_are_defaulted_and_validated(handlers):
    """Requests for other objects are errors."""
    async with FakeApiServer() as server:
        client = server.client()
        jobsets = JobSetHandlers(client)
        paths = routes(jobsets, handlers)
        assert all(path.startswith("/") for path in paths)
        good = {"metadata": {"name": "js"}, "spec": {}}
        assert len((await jobsets.mutate(create(good))).patch) == 3
        assert await jobsets.validate(create(good)) is ALLOWED
        bad = {"metadata": {"name": "js"}, "spec": {"managedBy": "x"}}
        assert (await jobsets.validate(create(bad))).status["code"] == 422
        change = ReviewRequest("u", "UPDATE", "ns", "js", bad, good)
        (cause,) = (await jobsets.validate(change)).status["details"]["causes"]
        assert cause["field"] == "spec.managedBy"
        assert await jobsets.validate(ReviewRequest("u", "DELETE", "ns")) is ALLOWED
        for wrong in (None, 3, [], {"spec": []}, {"spec": {"replicatedJobs": [{"replicas": "x"}]}}):
            assert (await jobsets.validate(create(wrong))).status["code"] == 400
        for wrong in (None, 3):
            assert (await jobsets.mutate(create(wrong))).status["code"] == 400
        await client.aclose()


async def test_existing_claim_must_be_retained():
    """A claim of the same name may not be deleted with the JobSet."""
    async with FakeApiServer() as server:
        server.register(StoredClaim)
        client = server.client()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        await client.create(Namespace, "", namespace)
        mounts = [{"name": "c", "volumeMounts": [{"name": "d"}]}]
        job = {"name": "w", "template": {"spec": {"template": {"spec": {"containers": mounts}}}}}
        policy = {
            "templates": [{"metadata": {"name": "d"}, "spec": SPEC}],
            "retentionPolicy": {"whenDeleted": "Delete"},
        }
        spec = {"replicatedJobs": [job], "volumeClaimPolicies": [policy]}
        body = {"metadata": {"name": "js"}, "spec": spec}
        jobsets = JobSetHandlers(client)
        assert await jobsets.validate(create(body)) is ALLOWED  # there is no claim
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": SPEC}
        await client.create(StoredClaim, "ns", {**claim, "metadata": {"name": "d-js"}})
        (cause,) = (await jobsets.validate(create(body))).status["details"]["causes"]
        assert cause["field"].endswith("retentionPolicy.whenDeleted")
        await client.aclose()


def annotated(mode: str, command: list[str] | None = None) -> dict:
    container = {"name": "c", "image": "i", **({"command": command} if command else {})}
    job = {"name": "w", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    return {
        "metadata": {"name": "js", "annotations": {keys.IN_PLACE_AGENT_ANNOTATION: mode}},
        "spec": {
            "failurePolicy": {"restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [job],
        },
    }


async def test_agent_is_injected_before_the_defaults(server):
    """The patch adds the agent with its restart policy first, and then missing fields."""
    handlers = JobSetHandlers(server.client(), WebhookSettings(agent_image="test.invalid/agent:1"))
    patch = (await handlers.mutate(create(annotated("sidecar")))).patch
    first, *others = patch
    template = first["value"]["template"]["spec"]

    assert first["path"] == "/spec/replicatedJobs/0/template/spec"
    assert template["initContainers"][0]["image"] == "test.invalid/agent:1"
    assert template["restartPolicy"] == "Never"
    assert not any(each["path"].endswith("restartPolicy") for each in others)
    assert any(each["path"].endswith("completionMode") for each in others)


async def test_jobset_without_a_command_is_refused_by_injection(server):
    """The status is that of validation, with field and advice."""
    handlers = JobSetHandlers(server.client(), WebhookSettings(agent_image="i"))
    status = (await handlers.mutate(create(annotated("supervisor")))).status
    (cause,) = status["details"]["causes"]

    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert cause["field"].endswith("containers[0].command")


def killed_alone(**fields) -> dict:
    """Return a JobSet whose agent has a rule for its own exit code only."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    agent = {
        "name": "jobset-agent",
        "restartPolicy": "Always",
        "restartPolicyRules": [{**rule, **fields}],
        "startupProbe": {"httpGet": {"path": "/barrier-is-lifted", "port": 8080}},
        "env": [{"name": "RESTART_POD_IN_PLACE_EXIT_CODE", "value": "42"}],
    }
    pod = {"initContainers": [agent], "containers": [{"name": "c", "image": "i"}]}
    job = {
        "backoffLimit": keys.INT32_MAX,
        "podReplacementPolicy": "Failed",
        "completions": 1,
        "parallelism": 1,
        "template": {"spec": pod},
    }
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": job}}]}
    policy = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}
    return {"metadata": {"name": "js"}, "spec": {**policy, **spec}}


@pytest.fixture
async def server():
    """A running fake API server."""
    async with FakeApiServer() as running:
        yield running


UNDECLARED = "of 2 nodes declares the feature RestartAllContainersOnContainerExits"


@pytest.mark.parametrize(
    ("nodes", "warned"),
    [
        (None, False),
        ([], False),  # nodes may be added with the pods
        ([False, True], False),
        ([False, False], True),
    ],
)
async def test_sidecar_has_a_warning_where_its_rule_may_be_missing(server, nodes, warned):
    """It depends on what the nodes declare; a supervisor needs no rule."""
    handlers = JobSetHandlers(server.client(), nodes=None if nodes is None else known(nodes))
    answer = await handlers.validate(create(killed_alone()))
    warnings = [each for each in answer.warnings if "restartPolicyRules[0].action: " in each]
    assert len(warnings) == warned
    assert all(UNDECLARED in each and "in the mode supervisor" in each for each in warnings)
    answer = await handlers.validate(create(supervised()))
    assert not any("RestartAll" in each for each in answer.warnings)


def known(declaring) -> Store[LabelledNode]:
    """Return a store of nodes that declare the feature or do not."""
    writer = StoreWriter(LabelledNode)
    declared = {"declaredFeatures": ["Other", "RestartAllContainersOnContainerExits"]}
    nodes = [
        {"metadata": {"name": f"n{at}", "uid": f"u{at}"}, "status": declared if it else {}}
        for at, it in enumerate(declaring)
    ]
    writer.replace([decoded(LabelledNode, node) for node in nodes], "1")
    writer.mark_synced("1")
    return writer.store


def supervised() -> dict:
    """Return the same JobSet with a supervisor."""
    jobset = killed_alone()
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (_,) = pod.pop("initContainers")
    pod["containers"][0] = {**pod["containers"][0], "command": ["/jobset-agent/supervise"]}
    return jobset


async def test_new_jobset_has_warnings(server):
    """Each has a field path; a refused or changed JobSet has none."""
    handlers = JobSetHandlers(server.client())
    good = killed_alone()
    answer = await handlers.validate(create(good))
    (warning,) = answer.warnings

    assert answer.status is None
    assert warning.startswith(
        "spec.replicatedJobs[0].template.spec.template.spec.initContainers[0].restartPolicyRules: "
    )
    assert "use RestartAllContainers, NotIn [0, 1, 2]" in warning
    update = ReviewRequest("u", "UPDATE", "ns", "js", good, good)
    assert await handlers.validate(update) is ALLOWED
    refused = await handlers.validate(create(killed_alone(action="Terminate")))
    assert (refused.status["code"], refused.warnings) == (422, ())
    off = JobSetHandlers(
        server.client(), WebhookSettings(features=Features(in_place_restart=False))
    )
    assert not (await off.validate(create(good))).warnings


async def test_injection_depends_on_its_feature_gate(server):
    """Without it nothing is added, and validation refuses the strategy."""
    off = Features(in_place_restart=False)
    settings = WebhookSettings(agent_image="i", features=off)
    handlers = JobSetHandlers(server.client(), settings)
    answer = await handlers.mutate(create(annotated("supervisor")))

    assert answer.status is None
    assert not any(each["op"] == "replace" for each in answer.patch)


async def test_update_keeps_the_injected_agent(server):
    """A manifest applied again is completed from the stored object; other updates are unchanged."""
    handlers = JobSetHandlers(server.client(), WebhookSettings(agent_image="i"))
    plain = annotated("supervisor", ["true"])
    stored = dict(plain)
    for operation in (await handlers.mutate(create(plain))).patch:
        if operation["op"] == "replace":
            job = {**plain["spec"]["replicatedJobs"][0], "template": {"spec": operation["value"]}}
            stored = {**plain, "spec": {**plain["spec"], "replicatedJobs": [job]}}

    def update(new: object, old: object) -> ReviewRequest:
        return ReviewRequest("u", "UPDATE", "ns", "js", new, old)

    again = await handlers.mutate(update(plain, stored))
    assert again.patch[0]["value"]["template"] == stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]  # fmt: skip
    assert await handlers.mutate(update(stored, stored)) is ALLOWED
    assert await handlers.mutate(ReviewRequest("u", "DELETE", "ns", "js", None, stored)) is ALLOWED
    assert (await handlers.mutate(update(plain, None))).status["code"] == 400


async def test_jobset_gets_the_settings_of_its_namespace_when_it_is_created(server):
    """With their source; an invalid one is ignored with a warning."""
    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "60s", keys.RESTART_BACKOFF_ANNOTATION: "soon"}
    await server.client().create(Namespace, "", {"metadata": {"name": "ns", "annotations": notes}})
    body = annotated("sidecar")
    del body["metadata"]["annotations"]
    answer = await JobSetHandlers(server.client()).mutate(create(body))
    (added,) = [each["value"] for each in answer.patch if each["path"] == "/metadata/annotations"]

    assert added[keys.LOST_NODE_DEADLINE_ANNOTATION] == "60s"
    assert added[keys.SETTINGS_FROM_ANNOTATION] == "namespace=lost-node-deadline"
    assert keys.RESTART_BACKOFF_ANNOTATION not in added
    assert [each.split(": ")[1] for each in answer.warnings] == ["ignored"]


async def test_error_says_who_has_set_an_annotation_when_its_user_has_not(server):
    """Here the namespace asks for modules in advance, and the worker is no Python program."""
    notes = {keys.IN_PLACE_PRELOAD_ANNOTATION: "auto"}
    await server.client().create(Namespace, "", {"metadata": {"name": "ns", "annotations": notes}})
    body = annotated("supervisor", ["true"])
    handlers = JobSetHandlers(server.client(), WebhookSettings(agent_image="i"))
    (cause,) = (await handlers.mutate(create(body))).status["details"]["causes"]

    assert cause["field"] == f"metadata.annotations[{keys.IN_PLACE_PRELOAD_ANNOTATION}]"
    assert cause["message"].endswith("(set by: namespace)")


async def test_jobset_is_refused_when_the_account_of_its_agents_is_missing(server):
    """A dry run, which may precede that of the account, warns; both say how to create it."""
    settings = WebhookSettings(agent_image="i")
    body = annotated("supervisor", ["true"])
    client, handlers = server.client(), JobSetHandlers(server.client(), settings)
    stored = json_patch(body, (await handlers.mutate(create(body))).patch)
    tried = await handlers.validate(create(stored, dry_run=True))
    assert (tried.status, [keys.AGENT_NAME in each for each in tried.warnings]) == (None, [True])
    (cause,) = (await handlers.validate(create(stored))).status["details"]["causes"]
    await client.create(Namespace, "", {"metadata": {"name": "ns"}})
    await client.create(StoredAccount, "ns", {"metadata": {"name": keys.AGENT_NAME}})

    assert cause["field"].endswith("template.spec.serviceAccountName")
    assert "kubectl apply -n ns -k config/agent/account" in cause["message"]
    assert (await handlers.validate(create(stored))).status is None
