"""Where the pods of a JobSet may go."""

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.placement.admission import (
    LeaderNotFoundError,
    PodPlace,
    base_name,
    find_leader,
    leader_name,
    mutate,
    refusal,
)

ZONE = "topology.kubernetes.io/zone"
LEADER = PodPlace(node="n1", phase="Running", controller_uid="u1")
WAITING = PodPlace(phase="Pending", controller_uid="u1")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LABEL_PATH = "/metadata/labels/jobset.sigs.k8s.io~1priority"


def pod(index: str | None = "1", *, zone: str | None = ZONE, drop: str = "", owner: str | None = "u1", annotations=(), **spec) -> dict:  # fmt: skip
    labels = {
        keys.JOBSET_NAME: "js",
        keys.REPLICATED_JOB_NAME: "rj",
        keys.JOB_INDEX: "0",
        keys.JOB_KEY: "key",
    }
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


def among(*places: PodPlace):
    return lambda base: places if base == "js-rj-0-0" else ()


def nodes(name: str):
    return {"n1": {ZONE: "a"}, "bare": {}}.get(name)


@pytest.mark.parametrize(
    "given",
    [
        {"metadata": {}, "spec": {"priority": 1}},
        pod(annotations={keys.NODE_SELECTOR_ANNOTATION: ""}, priority=1),
        pod(zone=None),
    ],
)
def test_left_alone(given):
    """No JobSet pod, the node-selector strategy, no priority and no topology: no change."""
    assert mutate(given, among(LEADER), nodes).patch == []
    assert refusal(given, among()) == ""


def test_priority_label_for_every_jobset_pod():
    """Pods without exclusive placement show their priority too, and nothing else changes."""
    patch = mutate(pod(zone=None, priority=100), among(), nodes).patch
    assert patch == [{"op": "add", "path": LABEL_PATH, "value": "100"}]


@pytest.mark.parametrize("index", ["0"])
def test_leader_terms(index):
    """A leader keeps other Jobs of its priority out of its domain; its own terms stay."""
    before = {"podAffinity": {REQUIRED: [{"topologyKey": "x"}]}, "nodeAffinity": {"a": 1}}
    patch = mutate(pod(index, priority=100, affinity=before), among(), nodes).patch
    assert [operation["path"] for operation in patch] == [LABEL_PATH, "/spec/affinity"]
    affinity = patch[1]["value"]
    assert affinity["nodeAffinity"] == {"a": 1}
    first, own = affinity["podAffinity"][REQUIRED]
    assert first == {"topologyKey": "x"}
    assert own == {
        "labelSelector": {
            "matchExpressions": [{"key": keys.JOB_KEY, "operator": "In", "values": ["key"]}]
        },
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
    ("selector", "operation"),
    [
        (None, {"op": "add", "path": "/spec/nodeSelector", "value": {ZONE: "a"}}),
        (
            {"other": "x", ZONE: "wrong"},
            {
                "op": "add",
                "path": "/spec/nodeSelector/topology.kubernetes.io~1zone",
                "value": "a",
            },
        ),
    ],
)
def test_follower_goes_where_its_leader_is(selector, operation):
    """The leader's domain is put into the node selector, next to what is there."""
    spec = {} if selector is None else {"nodeSelector": selector}
    assert mutate(pod(**spec), among(LEADER), nodes).patch == [operation]


@pytest.mark.parametrize("places", [(), (WAITING,), (LEADER, LEADER)])
def test_follower_without_a_placed_leader_is_left_to_validation(places):
    """Only the priority label is added, and validation refuses the pod."""
    given = pod(priority=5)
    mutation = mutate(given, among(*places), nodes)
    assert [operation["path"] for operation in mutation.patch] == [LABEL_PATH]
    assert (mutation.denied, mutation.missing_node) == ("", "")
    assert refusal(given, among(*places)) == "follower pod node selector not set"


def test_leader_on_a_strange_node():
    """A node that is gone and a node without the label end the request differently."""
    gone = PodPlace(node="gone", controller_uid="u1")
    assert mutate(pod(), among(gone), nodes).missing_node == "gone"
    bare = PodPlace(node="bare", controller_uid="u1")
    assert ZONE in mutate(pod(), among(bare), nodes).denied


@pytest.mark.parametrize(
    ("given", "places", "words"),
    [
        (pod(nodeSelector={}), (LEADER,), ZONE),
        (pod(nodeSelector={ZONE: "a"}), (), "expected 1 leader pod (js-rj-0-0), but got 0"),
        (pod(nodeSelector={ZONE: "a"}), (WAITING,), "expected, transient"),
        (pod(None, nodeSelector={ZONE: "a"}), (), "but got 0"),
    ],
)
def test_refused_followers(given, places, words):
    """Each reason that keeps a follower from being created."""
    assert words in refusal(given, among(*places))


@pytest.mark.parametrize(
    "places",
    [(LEADER,), (PodPlace(phase="Failed", controller_uid="u0"), LEADER)],
)
def test_accepted_followers(places):
    """A follower with a selector and one live, scheduled leader is created."""
    assert refusal(pod(nodeSelector={ZONE: "a"}), among(*places)) == ""


@pytest.mark.parametrize("ended", ["Failed", "Succeeded"])
def test_ended_leaders_do_not_count(ended):
    """The leader of an attempt before this one is passed over."""
    assert find_leader(pod(), among(PodPlace(phase=ended), LEADER)) is LEADER


@pytest.mark.parametrize(
    ("given", "places", "words"),
    [
        (pod(drop=keys.JOB_INDEX), (LEADER,), f"pod missing label: {keys.JOB_INDEX}"),
        (pod(drop=keys.JOBSET_NAME), (LEADER,), f"pod missing label: {keys.JOBSET_NAME}"),
        (pod(), (), "got 0"),
        (pod(), (LEADER, WAITING), "got 2"),
        (pod(), (PodPlace(node="n1", deleting=True, controller_uid="u1"),), "got 0"),
        (pod(), (PodPlace(node="n1", controller_uid="u2"),), "different owners"),
        (pod(), (PodPlace(node="n1"),), "leader pod (js-rj-0-0) has no controller"),
        (pod(owner=None), (LEADER,), "follower pod has no controller"),
    ],
)
def test_no_leader(given, places, words):
    """Every way in which the leader cannot be told."""
    with pytest.raises(LeaderNotFoundError, match=words.replace("(", r"\(").replace(")", r"\)")):
        find_leader(given, among(*places))


@pytest.mark.parametrize(
    ("name", "base"),
    [("js-rj-0-0-abcde", "js-rj-0-0"), ("a-b-rj-1-0-x", "a-b-rj-1-0"), ("js-rj-0-abcde", "")],
)
def test_base_names(name, base):
    """Names of fewer parts are of no Indexed Job."""
    assert base_name(name) == base
    assert leader_name(pod()) == "js-rj-0-0"


GATE = {"name": keys.PLACEMENT_GATE}
OWN = {"name": "users"}


@pytest.mark.parametrize("places", [(), (WAITING,), (LEADER, LEADER), (PodPlace(node="gone", controller_uid="u1"),)])  # fmt: skip
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
def test_a_follower_is_held_until_its_leader_has_a_place(places, spec, operation):
    """No leader yet, none on a node, two, or one on a node not seen yet: held beside users' gates."""  # fmt: skip
    mutation = mutate(pod(**spec), among(*places), nodes, gate=True)
    assert list(mutation.patch) == ([] if operation is None else [operation])
    assert (mutation.denied, mutation.missing_node) == ("", "")
    held = pod(schedulingGates=[OWN, GATE])
    assert refusal(held, among(*places), gate=True) == ""


def test_gates_change_nothing_for_a_leader_with_a_place():
    """Its followers go there at once, and a node without the label still refuses them."""
    (operation,) = mutate(pod(), among(LEADER), nodes, gate=True).patch
    assert operation["path"] == "/spec/nodeSelector"
    bare = PodPlace(node="bare", controller_uid="u1")
    assert ZONE in mutate(pod(), among(bare), nodes, gate=True).denied


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pod(None), "not set"),
        (pod(owner=None), "not set"),
        (pod(nodeName="n9"), "not set"),
        (pod(nodeSelector={"other": "x"}, owner=None), ZONE),
    ],
)
def test_a_pod_that_could_never_be_released_is_not_held(given, words):
    """Of a NonIndexed Job, of nobody, or on a node already: refused as without gates."""
    assert mutate(given, among(), nodes, gate=True).patch == []
    spec = {**given["spec"], "schedulingGates": [GATE]}
    assert words in refusal({**given, "spec": spec}, among(), gate=True)


@pytest.mark.parametrize("spec", [{}, {"schedulingGates": [OWN]}])
def test_only_our_gate_lets_a_follower_wait(spec):
    """Without it, or with gates off, the refusals are the same as ever."""
    assert refusal(pod(**spec), among(), gate=True) == "follower pod node selector not set"
    held = pod(schedulingGates=[GATE])
    assert refusal(held, among()) == "follower pod node selector not set"


def test_a_follower_after_its_leaders_end_places_itself():
    """It has the leader's terms instead of a domain, and is accepted for having them."""
    asked = []

    def over(name, uid):
        asked.append((name, uid))
        return True

    given = pod(priority=7)
    given["metadata"]["ownerReferences"][0]["name"] = "js-rj-0"
    ended = PodPlace(node="n1", phase="Succeeded", controller_uid="u1")
    label, terms = mutate(given, among(ended), nodes, gate=True, over=over).patch
    assert asked == [("js-rj-0", "u1")]
    assert (label["path"], terms["path"]) == (LABEL_PATH, "/spec/affinity")
    leader_terms = mutate(pod("0", priority=7), among(), nodes).patch[1]
    assert terms == leader_terms
    given["metadata"]["labels"][keys.PRIORITY_LABEL] = "7"
    given["spec"]["affinity"] = terms["value"]
    assert refusal(given, among(ended), gate=True) == ""
    given["metadata"]["labels"][keys.PRIORITY_LABEL] = "8"  # the terms are of another priority
    assert refusal(given, among(ended), gate=True) == "follower pod node selector not set"


def test_a_live_leader_wins_over_the_jobs_word():
    """A follower goes to a leader that runs, whatever the Job's status says."""
    (operation,) = mutate(pod(), among(LEADER), nodes, gate=True, over=lambda *_: True).patch
    assert operation["path"] == "/spec/nodeSelector"
