"""Settings by a word, by the namespace and by the cluster, and their sources."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.api.annotations import PREFIX
from jobsetpy.kubectl.explain import settings
from jobsetpy.kubectl.manifests import judge
from jobsetpy.reconcilers.restart_in_place.injection.effective import (
    ClusterDefaults,
    contradictions,
    default_problem,
    expand,
    fill,
    refill,
    sources_of,
)
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.update import validate_update
from support.restarts.injection_kit import WORKER, job, jobset

WORD = keys.IN_PLACE_RESTART_ANNOTATION
HANG = keys.IN_PLACE_HANG_ANNOTATION
DEADLINE = keys.LOST_NODE_DEADLINE_ANNOTATION
NOTHING = ClusterDefaults()


def plain(*jobs, strategy="InPlaceRestart", **notes):
    """Return a JobSet without an agent; ``_`` in names of annotations stands for a dash."""
    given = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
    return jobset(*jobs, mode=None, strategy=strategy, notes=given)


def notes_of(filled):
    """Return the annotations of the result, without their prefix and without their sources."""
    found = filled.jobset["metadata"]["annotations"]
    return {name.removeprefix(PREFIX): value for name, value in found.items() if "from" not in name}


def fast(**changes):
    """Return the annotations that the word stands for, with changes; ``None`` leaves one out."""
    names = {"agent": "supervisor", "hang-seconds": "auto", "progress-pattern": "auto"}
    names |= {"preload": "auto", **changes}
    found = {f"in-place-restart-{name}": value for name, value in names.items() if value}
    return {"in-place-restart": "fast", **found}


SHELL = job(containers=[{**WORKER, "command": ["bash", "run.sh"]}])
# As a backup of a JobSet has it, which the webhook has given an agent.
RESTORED = job(containers=[{**WORKER, "command": ["/jobset-agent/supervise", "bash", "run.sh"]}])
TWO = [{**WORKER, "name": "worker"}, {**WORKER, "name": "logs", "command": ["tail"]}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (plain(in_place_restart="fast"), fast()),
        (plain(SHELL, in_place_restart="fast"), fast(preload=None)),
        (plain(RESTORED, in_place_restart="fast"), fast(preload=None)),
        (
            plain(job(containers=[{**WORKER, "tty": True}]), in_place_restart="fast"),
            fast(**{"progress-pattern": None}),
        ),
        (
            plain(in_place_restart="fast", in_place_restart_spares="1"),
            fast(**{"heartbeat-seconds": "auto", "spares": "1"}),
        ),
        (
            plain(in_place_restart="fast", in_place_restart_hang_seconds="60"),
            fast(**{"hang-seconds": "60"}),
        ),
        (
            plain(in_place_restart="fast", in_place_restart_agent="sidecar"),
            fast(agent="sidecar", preload=None, **{"hang-seconds": None, "progress-pattern": None}),
        ),
        (
            plain(
                job(containers=TWO),
                in_place_restart="fast",
                in_place_restart_container="worker",
            ),
            fast(container="worker"),
        ),
        (plain(in_place_restart="off"), {"in-place-restart": "off"}),
        (plain(), {}),
    ],
)
def test_word_stands_for_what_can_work(body, expected):
    """Single annotations take precedence over it."""
    assert notes_of(fill(body, {}, NOTHING)) == expected


def test_word_makes_a_jobset_restart_in_place_when_its_policy_is_missing():
    """One annotation is enough; what the policy states remains."""
    body = plain(strategy="Recreate", in_place_restart="fast")
    stated = fill(body, {}, NOTHING).jobset["spec"]["failurePolicy"]
    del body["spec"]["failurePolicy"]
    missing = fill(body, {}, NOTHING).jobset["spec"]["failurePolicy"]

    assert stated == {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}
    assert missing == {"maxRestarts": 100, "restartStrategy": "InPlaceRestart"}
    assert judge(body, Features()).errors == []


def test_jobset_takes_precedence_over_its_namespace_and_that_over_the_cluster():
    """Each setting has the source that states it."""
    cluster = ClusterDefaults({WORD: "fast", HANG: "1", DEADLINE: "30s"}, {})
    namespace = {HANG: "2", f"{PREFIX}restart-backoff": "3s", "team": "a"}
    filled = fill(plain(restart_backoff="4s"), namespace, cluster)

    assert notes_of(filled) == fast(**{"hang-seconds": "2"}) | {
        "lost-node-deadline": "30s",
        "restart-backoff": "4s",
    }
    assert sources_of(filled.jobset["metadata"]["annotations"]) == dict(filled.sources)
    sources = {name.removeprefix(PREFIX): each for name, each in filled.sources.items()}
    assert sources == {
        "in-place-restart": "cluster",
        "in-place-restart-agent": "fast",
        "in-place-restart-preload": "fast",
        "in-place-restart-progress-pattern": "fast",
        "in-place-restart-hang-seconds": "namespace",
        "lost-node-deadline": "cluster",
    }
    shown = {each.name: each.source for each in settings(filled.jobset)}
    assert shown["in-place-restart-hang-seconds"] == "namespace"
    assert shown["restart-backoff"] == "JobSet"
    assert shown["in-place-restart-grace-seconds"] == "default"


@pytest.mark.parametrize(
    "body",
    [
        plain(strategy="Recreate"),
        plain(in_place_restart="off"),
        plain(job(containers=[{**WORKER, "command": ["/jobset-agent/supervise", "python"]}])),
    ],
)
def test_default_adds_no_agent_when_the_jobset_does_not_ask_for_one(body):
    """A default says how to restart in place, not that a JobSet should."""
    namespace = {WORD: "fast", HANG: "600", keys.IN_PLACE_HEARTBEAT_ANNOTATION: "auto"}
    before = copy.deepcopy(body["metadata"].get("annotations", {}))

    assert fill(body, namespace, NOTHING).jobset["metadata"].get("annotations", {}) == before


def test_enforced_value_is_refused_when_the_jobset_contradicts_it():
    """On the JobSet and on its templates; without an own value it is filled in."""
    cluster = ClusterDefaults({}, {DEADLINE: "60s", HANG: "600"})
    body = plain(job(notes={HANG: "5"}), lost_node_deadline="9m", in_place_restart="fast")
    problems = fill(body, {DEADLINE: "5m"}, cluster).problems

    assert [each.field for each in problems] == [
        f"metadata.annotations[{DEADLINE}]",
        f"spec.replicatedJobs[0].template.spec.template.metadata.annotations[{HANG}]",
    ]
    assert 'this cluster enforces "60s"' in problems[0].message
    stored = plain(lost_node_deadline="9m")
    assert contradictions(stored, cluster.enforced, stored) == []
    (changed,) = contradictions(stored, cluster.enforced, plain(lost_node_deadline="60s"))
    assert changed.field == f"metadata.annotations[{DEADLINE}]"
    filled = fill(plain(), {DEADLINE: "5m"}, cluster)
    assert notes_of(filled) == {"lost-node-deadline": "60s"}
    assert filled.sources == {DEADLINE: "enforced"}


def test_invalid_annotations_of_a_namespace_cause_warnings():
    """They are the platform team's mistake, and refuse no JobSet."""
    namespace = {f"{PREFIX}lost-node-deadlin": "60s", HANG: "soon"}
    filled = fill(plain(in_place_restart="fast"), namespace, NOTHING)

    assert notes_of(filled) == fast()
    assert [str(each) for each in filled.warnings] == [
        (
            f"the namespace's metadata.annotations[{PREFIX}lost-node-deadlin]: ignored: nothing reads "
            f"this annotation: did you mean {DEADLINE}?"
        ),
        (
            f"the namespace's metadata.annotations[{HANG}]: ignored: must be a whole number of seconds "
            'from 1 to 604800, or "auto"'
        ),
    ]
    assert default_problem(keys.RESTART_IN_PLACE_ANNOTATION, "x") != ""


def test_manifest_can_be_applied_again_when_admission_has_added_settings():
    """They are kept with their sources, as is the failure policy; a new value is the JobSet's."""
    given = plain(strategy="Recreate", in_place_restart="fast")
    stored = judge(given, Features()).jobset
    again = refill(stored, given).jobset
    again = restore(stored, again).jobset
    changed = copy.deepcopy(given)
    changed["metadata"]["annotations"][HANG] = "60"
    del given["metadata"]["annotations"][WORD]

    assert again["metadata"]["annotations"] == stored["metadata"]["annotations"]
    assert again["spec"]["failurePolicy"] == stored["spec"]["failurePolicy"]
    assert HANG not in sources_of(refill(stored, changed).jobset["metadata"]["annotations"])
    fields = [each.field for each in validate_update(stored, refill(stored, given).jobset)]
    assert f"metadata.annotations[{WORD}]" in fields


def test_update_adds_nothing_when_admission_has_added_nothing():
    """A later annotation of the namespace does not change a stored JobSet."""
    old = plain(restart_backoff="4s")

    assert refill(old, copy.deepcopy(old)).patch == []
    assert expand("slow", old["spec"], {}) == {}
