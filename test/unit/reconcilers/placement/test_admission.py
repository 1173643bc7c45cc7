"""Admission of pods under exclusive placement."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.placement.admission import (
    LeaderNotFoundError,
    base_name,
    find_leader,
    leader_name,
    refusal,
)
from jobsetpy.reconcilers.placement.admission import mutate as placed
from support.jobsets import decoded

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LABEL_PATH = "/metadata/labels/jobset.sigs.k8s.io~1priority"


def place(node="", phase="", controller_uid="", **metadata) -> ChildPod:
    """Return a cached pod that may be a leader."""
    owners = [{"uid": controller_uid, "controller": True}] if controller_uid else []
    return decoded(
        ChildPod,
        {
            "metadata": {"ownerReferences": owners, **metadata},
            "spec": {"nodeName": node},
            "status": {"phase": phase},
        },
    )


LEADER = place(node="n1", phase="Running", controller_uid="u1")
WAITING = place(phase="Pending", controller_uid="u1")


def pod(index: str | None = "1", *, zone: str | None = ZONE, drop: str = "", owner: str | None = "u1", annotations=(), **spec) -> dict:  # fmt: skip
    """Return a pod of a Job, by default a follower."""
    labels = {keys.JOBSET_NAME: "js", keys.REPLICATED_JOB_NAME: "rj", keys.JOB_INDEX: "0"}
    labels[keys.JOB_KEY] = "key"
    labels.pop(drop, None)
    notes = {keys.JOBSET_NAME: "js", **dict(annotations)}
    if index is not None:
        notes[keys.COMPLETION_INDEX_ANNOTATION] = index
    if zone:
        notes[keys.EXCLUSIVE_TOPOLOGY_ANNOTATION] = zone
    metadata = {"labels": labels, "annotations": notes}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"metadata": metadata, "spec": spec}


def among(*places: ChildPod):
    """Return a lookup that finds these pods by the leader's base name."""
    return lambda base: places if base == "js-rj-0-0" else ()


def nodes(name: str):
    """Return the labels of a node, ``None`` if it is unknown."""
    return {"n1": {ZONE: "a"}, "bare": {}}.get(name)


def mutate(new, leaders, lookup, over=lambda _name, _uid: False):
    """Return the placement of a pod; by default a leader may still come."""
    return placed(new, leaders, lookup, over)


@pytest.mark.parametrize(
    "new",
    [
        {"metadata": {}, "spec": {"priority": 1}},
        pod(annotations={keys.NODE_SELECTOR_ANNOTATION: ""}, priority=1),
        pod(zone=None),
    ],
)
def test_other_pods_are_left_alone(new):
    """Pods of no JobSet, with the node-selector strategy, or without topology."""
    assert mutate(new, among(LEADER), nodes).patch == []
    assert refusal(new, among()) == ""


def test_pod_without_placement_gets_only_its_priority_label():
    """Every pod of a JobSet has it."""
    patch = mutate(pod(zone=None, priority=100), among(), nodes).patch
    assert patch == [{"op": "add", "path": LABEL_PATH, "value": "100"}]


def test_leader_gets_affinity_terms():
    """They keep other Jobs of its priority out of its domain; its own terms stay."""
    before = {"podAffinity": {REQUIRED: [{"topologyKey": "x"}]}, "nodeAffinity": {"a": 1}}
    patch = mutate(pod("0", priority=100, affinity=before), among(), nodes).patch
    assert [operation["path"] for operation in patch] == [LABEL_PATH, "/spec/affinity"]
    affinity = patch[1]["value"]
    assert affinity["nodeAffinity"] == {"a": 1}
    first, own = affinity["podAffinity"][REQUIRED]
    assert first == {"topologyKey": "x"}
    in_job = {"key": keys.JOB_KEY, "operator": "In", "values": ["key"]}
    assert own == {
        "labelSelector": {"matchExpressions": [in_job]},
        "topologyKey": ZONE,
        "namespaceSelector": {},
    }
    (others,) = affinity["podAntiAffinity"][REQUIRED]
    assert others["labelSelector"]["matchExpressions"] == [
        {"key": keys.JOB_KEY, "operator": "Exists"},
        {"key": keys.JOB_KEY, "operator": "NotIn", "values": ["key"]},
        {"key": keys.PRIORITY_LABEL, "operator": "In", "values": ["100"]},
    ]
    assert (others["topologyKey"], others["namespaceSelector"]) == (ZONE, {})
    assert refusal(pod("0"), among()) == ""


@pytest.mark.parametrize(
    ("selector", "path", "value"),
    [
        (None, "", {ZONE: "a"}),
        ({"other": "x", ZONE: "wrong"}, "/topology.kubernetes.io~1zone", "a"),
    ],
)
def test_follower_gets_the_domain_of_its_leader(selector, path, value):
    """Other entries of its node selector stay."""
    spec = {} if selector is None else {"nodeSelector": selector}
    operation = {"op": "add", "path": f"/spec/nodeSelector{path}", "value": value}
    assert mutate(pod(**spec), among(LEADER), nodes).patch == [operation]


@pytest.mark.parametrize(
    ("new", "places", "words"),
    [
        (pod(), (), "follower pod node selector not set"),
        (pod(nodeSelector={}), (LEADER,), ZONE),
        (pod(nodeSelector={ZONE: "a"}), (), "expected 1 leader pod (js-rj-0-0), but got 0"),
        (pod(nodeSelector={ZONE: "a"}), (WAITING,), "expected, transient"),
        (pod(None, nodeSelector={ZONE: "a"}), (), "but got 0"),
    ],
)
def test_invalid_follower_is_refused(new, places, words):
    """It needs a selector and one live leader."""
    assert words in refusal(new, among(*places))


@pytest.mark.parametrize("places", [(LEADER,), (place(phase="Failed", controller_uid="u0"), LEADER)])  # fmt: skip
def test_valid_follower_is_accepted(places):
    """It has a selector, and its leader is live and bound."""
    assert refusal(pod(nodeSelector={ZONE: "a"}), among(*places)) == ""


@pytest.mark.parametrize("ended", ["Failed", "Succeeded"])
def test_leader_that_has_ended_does_not_count(ended):
    """It is the leader of an earlier attempt."""
    assert find_leader(pod(), among(place(phase=ended), LEADER)) is LEADER


@pytest.mark.parametrize(
    ("new", "places", "words"),
    [
        (pod(drop=keys.JOB_INDEX), (LEADER,), f"pod missing label: {keys.JOB_INDEX}"),
        (pod(drop=keys.JOBSET_NAME), (LEADER,), f"pod missing label: {keys.JOBSET_NAME}"),
        (pod(), (), "got 0"),
        (pod(), (LEADER, WAITING), "got 2"),
        (
            pod(),
            (place("n1", controller_uid="u1", deletionTimestamp="2026-01-01T00:00:00Z"),),
            "got 0",
        ),
        (pod(), (place(node="n1", controller_uid="u2"),), "different owners"),
        (pod(), (place(node="n1"),), "leader pod (js-rj-0-0) has no controller"),
        (pod(owner=None), (LEADER,), "follower pod has no controller"),
    ],
)
def test_missing_leader_is_reported_with_the_reason(new, places, words):
    """Labels and owners identify the leader."""
    with pytest.raises(LeaderNotFoundError, match=words.replace("(", r"\(").replace(")", r"\)")):
        find_leader(new, among(*places))


@pytest.mark.parametrize(
    ("name", "base"),
    [("js-rj-0-0-abcde", "js-rj-0-0"), ("a-b-rj-1-0-x", "a-b-rj-1-0"), ("js-rj-0-abcde", "")],
)
def test_base_name_is_the_name_without_its_suffix(name, base):
    """Shorter names belong to no Indexed Job."""
    assert base_name(name) == base
    assert leader_name(pod()) == "js-rj-0-0"


GATE = {"name": keys.PLACEMENT_GATE}
OWN = {"name": "users"}


@pytest.mark.parametrize("places", [(), (WAITING,), (LEADER, LEADER), (place(node="gone", controller_uid="u1"),)])  # fmt: skip
@pytest.mark.parametrize(
    ("spec", "operation"),
    [
        ({}, {"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}),
        (
            {"schedulingGates": [OWN]},
            {"op": "add", "path": "/spec/schedulingGates/-", "value": GATE},
        ),
        ({"schedulingGates": [GATE]}, None),
    ],
)
def test_follower_is_held_until_its_leader_is_bound(places, spec, operation):
    """Also if there are two leaders or the node is unknown; users' gates stay."""
    mutation = mutate(pod(**spec), among(*places), nodes)
    assert list(mutation.patch) == ([] if operation is None else [operation])
    assert mutation.denied == ""
    held = pod(schedulingGates=[OWN, GATE])
    assert refusal(held, among(*places)) == ""


def test_gates_do_not_change_followers_of_a_bound_leader():
    """They get its domain, and a node without the label still denies them."""
    (operation,) = mutate(pod(), among(LEADER), nodes).patch
    assert operation["path"] == "/spec/nodeSelector"
    bare = place(node="bare", controller_uid="u1")
    assert ZONE in mutate(pod(), among(bare), nodes).denied


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (pod(None), "not set"),
        (pod(owner=None), "not set"),
        (pod(nodeName="n9"), "not set"),
        (pod(nodeSelector={"other": "x"}, owner=None), ZONE),
    ],
)
def test_pod_that_could_never_be_released_is_not_held(new, words):
    """Pods of NonIndexed Jobs, without an owner, or with a node are refused."""
    assert mutate(new, among(), nodes).patch == []
    spec = {**new["spec"], "schedulingGates": [GATE]}
    assert words in refusal({**new, "spec": spec}, among())


@pytest.mark.parametrize("spec", [{}, {"schedulingGates": [OWN]}])
def test_follower_is_refused_without_our_gate(spec):
    """Nothing would wait for its leader."""
    assert refusal(pod(**spec), among()) == "follower pod node selector not set"


def test_follower_gets_the_terms_of_a_leader_when_its_leader_has_ended():
    """It is accepted with these terms in place of a domain."""
    calls = []

    def over(*job):
        calls.append(job)
        return True

    new = pod(priority=7)
    new["metadata"]["ownerReferences"][0]["name"] = "js-rj-0"
    ended = place(node="n1", phase="Succeeded", controller_uid="u1")
    label, terms = mutate(new, among(ended), nodes, over=over).patch
    assert calls == [("js-rj-0", "u1")]
    assert (label["path"], terms["path"]) == (LABEL_PATH, "/spec/affinity")
    leader_terms = mutate(pod("0", priority=7), among(), nodes).patch[1]
    assert terms == leader_terms
    new["metadata"]["labels"][keys.PRIORITY_LABEL] = "7"
    new["spec"]["affinity"] = terms["value"]
    assert refusal(new, among(ended)) == ""
    new["metadata"]["labels"][keys.PRIORITY_LABEL] = "8"  # the terms have another priority
    assert refusal(new, among(ended)) == "follower pod node selector not set"


def test_live_leader_wins_over_the_status_of_its_job():
    """The status may say that the leader's index is complete."""
    (operation,) = mutate(pod(), among(LEADER), nodes, over=lambda *_: True).patch
    assert operation["path"] == "/spec/nodeSelector"
