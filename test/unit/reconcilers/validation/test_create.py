"""Rules for new JobSets."""

import time

import pytest

from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import MAX_JOBS
from jobsetpy.reconcilers.rules.names import effective_name
from jobsetpy.reconcilers.validation.create import claims_to_look_up, validate_create
from jobsetpy.reconcilers.validation.warnings import warnings
from support.admission.validation_kit import MAX, jobset, rjob, rules


def agent(action: str = "RestartAllContainers") -> dict:
    """Return a pod spec with an agent that restarts with this action."""
    rules_ = [{"action": action}]
    container = {"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules_}
    return {"initContainers": [container]}


TWO_PODS = {"completions": 2, "parallelism": 2}
IN_PLACE_JOB = {"backoffLimit": MAX, "podReplacementPolicy": "Failed", **TWO_PODS}
IN_PLACE = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
RESERVED = [{"name": "group-scheduling-init"}]
ORDERED = {"startupPolicyOrder": "InOrder"}


def in_place(pod: dict | None = None, **job) -> dict:
    """Return a JobSet that restarts in place; ``None`` removes a field of its Job."""
    spec = {key: value for key, value in {**IN_PLACE_JOB, **job}.items() if value is not None}
    return jobset(rjob(job=spec, pod=agent() if pod is None else pod), **IN_PLACE)


def two_in_place(*, depends: list | None = None, **spec) -> dict:
    """Return a JobSet of two ReplicatedJobs that restart in place."""
    first = rjob("a", job=IN_PLACE_JOB, pod=agent())
    second = rjob("b", job=IN_PLACE_JOB, pod=agent(), **({"dependsOn": depends} if depends else {}))
    return jobset(first, second, **IN_PLACE, **spec)


def mounting(*names: str, kind: str = "containers", **pod) -> dict:
    """Return a ReplicatedJob with a container that mounts these volumes."""
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    return rjob(pod={kind: [{"name": "c", "volumeMounts": mounts}], **pod})


def claim_policy(*names: str, keep: str = "Retain") -> dict:
    """Return a policy for claims with these names."""
    return {
        "templates": [{"metadata": {"name": name}, "spec": SPEC} for name in names],
        "retentionPolicy": {"whenDeleted": keep},
    }


def chain(*depends: list[str]) -> dict:
    """Return a JobSet whose ReplicatedJobs depend on these others."""
    jobs = []
    for n, names in enumerate(depends, start=1):
        needs = {"dependsOn": [{"name": name, "status": "Ready"} for name in names]}
        jobs.append(rjob(f"rj-{n}", **(needs if names else {})))
    return jobset(*jobs)


JOBS = "spec.replicatedJobs"
RULES = "spec.failurePolicy.rules"
REFUSED = [
    # --- counts and names
    ("gen-name", jobset(rjob("worker"), generate_name="a" * 49 + "-"), f"{JOBS}[0].name", "job names"),
    ("product", jobset(rjob(replicas=MAX, job={"parallelism": MAX})), "<nil>", "must not exceed 2147483647"),
    ("indexed-pods", jobset(rjob(job={"parallelism": 100_001})), f"{JOBS}[0].template.spec.parallelism", "Invalid value: 100001: must be at most 100000"),
    ("negative-product", jobset(rjob(replicas=-MAX - 1, job={"parallelism": -MAX - 1})), "<nil>", "must not exceed 2147483647 for replicatedJob 'w'"),
    ("dotted-job", jobset(rjob("a.b")), f"{JOBS}[0].name", "DNS-1035"),
    ("digit-first", jobset(name="1js"), f"{JOBS}[0].name", "DNS-1035"),
    ("upper-case", jobset(name="Js"), f"{JOBS}[0].name", "DNS-1035"),
    ("no-name", jobset(name=""), f"{JOBS}[0].name", "DNS-1035"),
    ("long-group", jobset(rjob(groupName="a" * 64)), f"{JOBS}[0].groupName", "groupName is too long"),
    ("empty-group", jobset(rjob(groupName="")), f"{JOBS}[0].groupName", "DNS-1035"),
    ("long-jobset", jobset(rjob(replicas=101), name="j" * 62), f"{JOBS}[0].name", "job names generated for this JobSet will exceed 63 characters: shorten it, or the replicatedJob's name, by 5"),
    ("long-pod", jobset(rjob(job={"completions": 1}), name="j" * 56), f"{JOBS}[0].name", "name, by 5"),
    # --- whole-object rules
    ("success-target", jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["does not exist"]}), "<nil>", "does not exist"),
    ("subdomain", jobset(network={"subdomain": "a" * 64}), "spec.network.subdomain", ".spec.network.subdomain is too long"),
    ("dotted-subdomain", jobset(network={"subdomain": "a.b"}), "spec.network.subdomain", "DNS-1035"),
    ("upper-subdomain", jobset(network={"subdomain": "A"}), "spec.network.subdomain", "RFC 1123"),
    ("manager", jobset(managedBy="other-controller"), "spec.managedBy", "domain-prefixed path"),
    ("manager-prefix", jobset(managedBy="A_/x"), "spec.managedBy", "prefix part"),
    ("manager-path", jobset(managedBy="a.b/ä"), "spec.managedBy", "path part"),
    ("manager-empty", jobset(managedBy=""), "spec.managedBy", "Required value"),
    ("manager-long", jobset(managedBy="foo.bar/" + "x" * 63), "spec.managedBy", "more than 63 bytes"),
    # --- failure policy
    ("long-reason", jobset(failurePolicy=rules({"name": "r", "onJobFailureReasons": ["x" * 1025]})), f"{RULES}[0].onJobFailureReasons[0]", "invalid job failure reason"),
    ("reason", jobset(failurePolicy=rules({"name": "r", "onJobFailureReasons": ["PodFailurePolicy", "no reason"]})), f"{RULES}[0].onJobFailureReasons[1]", "no reason"),
    ("pattern", jobset(failurePolicy=rules({"name": "r", "onJobFailureMessagePatterns": ["a", "(["]})), f"{RULES}[0].onJobFailureMessagePatterns[1]", "missing ]"),
    ("long-pattern", jobset(failurePolicy=rules({"name": "r", "onJobFailureMessagePatterns": ["x" * 4097]})), f"{RULES}[0].onJobFailureMessagePatterns[0]", "4096"),
    ("reason-twice", jobset(failurePolicy=rules({"name": "r", "onJobFailureReasons": ["Other", "Other"]})), f"{RULES}[0].onJobFailureReasons[1]", "listed twice"),
    ("target-twice", jobset(failurePolicy=rules({"name": "r", "targetReplicatedJobs": ["w", "w"]})), f"{RULES}[0].targetReplicatedJobs[1]", "listed twice"),
    ("rule-target", jobset(failurePolicy=rules({"name": "r", "targetReplicatedJobs": ["w", "nope"]})), f"{RULES}[0].targetReplicatedJobs[1]", "'nope'"),
    ("rule-name-empty", jobset(failurePolicy=rules({"name": ""})), f"{RULES}[0].name", "length 0"),
    ("rule-name-long", jobset(failurePolicy=rules({"name": "a" * 129})), f"{RULES}[0].name", "length 129"),
    ("rule-name-start", jobset(failurePolicy=rules({"name": "1a"})), f"{RULES}[0].name", "start with an alphabetic"),
    ("rule-name-end", jobset(failurePolicy=rules({"name": "a:"})), f"{RULES}[0].name", "must end with"),
    ("rule-twice", jobset(failurePolicy=rules({"name": "a"}, {"name": "b"}, {"name": "a"})), f"{RULES}[2].name", "[0, 2]"),
    ("rj-1024", jobset(rjob(replicas=1025), failurePolicy=rules({"name": "a", "action": "RestartJob"})), "<nil>", "1024"),
    ("rji-1024", jobset(rjob(replicas=1025), failurePolicy=rules({"name": "a", "action": "RestartJobAndIgnoreMaxRestarts"})), "<nil>", "1024"),
    ("rrj-1024", jobset(rjob(replicas=1025), failurePolicy=rules({"name": "a", "action": "RestartReplicatedJob"})), "<nil>", "1024"),
    # --- coordinator
    ("co-job", jobset(rjob(job=TWO_PODS), coordinator={"replicatedJob": "x"}), "<nil>", "does not exist"),
    ("co-completions", jobset(coordinator={"replicatedJob": "w"}), "<nil>", "completions number"),
    ("co-mode", jobset(rjob(job={**TWO_PODS, "completionMode": "NonIndexed"}), coordinator={"replicatedJob": "w"}), "<nil>", "indexed completion mode"),
    ("co-job-index", jobset(rjob(job=TWO_PODS), coordinator={"replicatedJob": "w", "jobIndex": 1}), "<nil>", "job index 1"),
    ("co-negative", jobset(rjob(job=TWO_PODS), coordinator={"replicatedJob": "w", "jobIndex": -1}), "<nil>", "job index -1"),
    ("co-pod-index", jobset(rjob(job=TWO_PODS), coordinator={"replicatedJob": "w", "podIndex": 2}), "<nil>", "pod index 2"),
    ("co-long-jobset", jobset(rjob(job=TWO_PODS), name="j" * 60, coordinator={"replicatedJob": "w"}), "<nil>", "spec will lead to invalid label value"),
    ("co-long-job", jobset(rjob("w" * 60, job=TWO_PODS), coordinator={"replicatedJob": "w" * 60}), "<nil>", "spec will lead to invalid label value"),
    ("co-long-sub", jobset(rjob(job=TWO_PODS), network={"subdomain": "s" * 60}, coordinator={"replicatedJob": "w"}), "<nil>", "spec will lead to invalid label value"),
    # --- dependencies
    ("later", chain([], ["rj-3"], []), "<nil>", "replicatedJob: rj-2 cannot depend on replicatedJob: rj-3"),
    ("unknown", chain([], ["nope"]), "<nil>", "cannot depend on replicatedJob: nope"),
    ("first", chain(["rj-1"]), "<nil>", "DependsOn can't be set for the first ReplicatedJob"),
    ("first-empty", jobset(rjob(dependsOn=[])), "<nil>", "DependsOn can't be set for the first"),
    # --- volume claims
    ("claim-twice", jobset(mounting("d"), volumeClaimPolicies=[claim_policy("d"), claim_policy("d")]), "spec.volumeClaimPolicies[1].template[0].name", "unique"),
    ("claim-upper", jobset(mounting("D"), volumeClaimPolicies=[claim_policy("D")]), "spec.volumeClaimPolicies[0].template[0].name", "RFC 1123"),
    ("claim-long", jobset(mounting("d" * 61), volumeClaimPolicies=[claim_policy("d" * 61)]), "spec.volumeClaimPolicies[0].template[0].name", "VolumeClaimPolicies template name is too long"),
    ("claim-generated", jobset(mounting("datasets"), generate_name="a" * 49 + "-", volumeClaimPolicies=[claim_policy("datasets")]), "spec.volumeClaimPolicies[0].template[0].name", "template name is too long"),
    ("claim-unmounted", jobset(mounting("x"), volumeClaimPolicies=[claim_policy("d")]), "spec.replicatedJobs", "no container or initContainer mounts the volume 'd'"),
    ("claim-volume", jobset(mounting("d", volumes=[{"name": "d"}]), volumeClaimPolicies=[claim_policy("d")]), f"{JOBS}[0].template.spec.template.spec.volumes[0].name", "must not be that of a template"),
    # --- in-place restart
    ("ip-backoff", in_place(backoffLimit=6), f"{JOBS}[0].template.spec.backoffLimit", "replicatedJob w:"),
    ("ip-no-backoff", in_place(backoffLimit=None), f"{JOBS}[0].template.spec.backoffLimit", "2147483647"),
    ("ip-replacement", in_place(podReplacementPolicy="TerminatingOrFailed"), f"{JOBS}[0].template.spec.podReplacementPolicy", "must be set to Failed"),
    ("ip-unequal", in_place(completions=3), f"{JOBS}[0].template.spec.completions", "equal"),
    ("ip-no-completions", in_place(completions=None), f"{JOBS}[0].template.spec.completions", "equal"),
    ("ip-no-parallelism", in_place(parallelism=None), f"{JOBS}[0].template.spec.completions", "equal"),
    ("ip-in-order", two_in_place(startupPolicy=ORDERED), "spec.startupPolicy.startupPolicyOrder", "start together"),
    ("ip-depends", two_in_place(depends=[{"name": "a", "status": "Ready"}]), f"{JOBS}[1].dependsOn[0].name", "start together"),
    ("ip-no-agent", in_place(pod={}), f"{JOBS}[0].template.spec.template.spec.initContainers", "no agent"),
    # --- group scheduling
    ("group-target", jobset(groupSchedulingConfig={"targetReplicatedJobs": ["x"]}), "spec.groupSchedulingConfig.targetReplicatedJobs[0]", '"x"'),
    ("group-order", jobset(rjob("a"), rjob("b"), startupPolicy=ORDERED, groupSchedulingConfig={}), "spec.startupPolicy.startupPolicyOrder", "InOrder"),
    ("group-depends", jobset(rjob("a"), rjob("b", dependsOn=[{"name": "a", "status": "Ready"}]), groupSchedulingConfig={}), f"{JOBS}[1].dependsOn[0].name", "must not wait"),
    ("group-claim", jobset(rjob(pod={"containers": [{"name": "c", "volumeMounts": [{"name": "group-scheduling", "mountPath": "/d"}]}]}), volumeClaimPolicies=[{"templates": [{"metadata": {"name": "group-scheduling"}, "spec": {}}]}], groupSchedulingConfig={}), "spec.volumeClaimPolicies[0].templates[0].metadata.name", "reserved"),
    ("group-depends-through", jobset(rjob("a"), rjob("x", dependsOn=[{"name": "a", "status": "Ready"}]), rjob("b", dependsOn=[{"name": "x", "status": "Ready"}]), groupSchedulingConfig={"targetReplicatedJobs": ["a", "b"]}), f"{JOBS}[2].dependsOn[0].name", "another of its group (a through it)"),
    ("group-container", jobset(rjob(pod={"containers": RESERVED}), groupSchedulingConfig={}), f"{JOBS}[0].template.spec.template.spec.containers[0].name", "reserved"),
    ("group-init", jobset(rjob(pod={"initContainers": RESERVED}), groupSchedulingConfig={}), f"{JOBS}[0].template.spec.template.spec.initContainers[0].name", "reserved"),
    ("group-container-without-config", jobset(rjob(pod={"containers": RESERVED})), f"{JOBS}[0].template.spec.template.spec.containers[0].name", "reserved"),
    ("group-init-without-config", jobset(rjob(pod={"initContainers": RESERVED})), f"{JOBS}[0].template.spec.template.spec.initContainers[0].name", "reserved"),
    ("group-init-of-no-target", jobset(rjob("a"), rjob("b", pod={"initContainers": RESERVED}), groupSchedulingConfig={"targetReplicatedJobs": ["a"]}), f"{JOBS}[1].template.spec.template.spec.initContainers[0].name", "reserved"),
    ("group-volume", jobset(rjob(pod={"volumes": [{"name": "group-scheduling"}]}), groupSchedulingConfig={}), f"{JOBS}[0].template.spec.template.spec.volumes[0].name", "reserved"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("obj", "field", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused(obj, field, words):
    """Each problem names the field that is wrong and says what is wrong with it."""
    problems = validate_create(obj)
    assert any(problem.field == field and words in problem.message for problem in problems)
    assert {problem.field for problem in problems} <= {field, "<nil>", f"{JOBS}[0].name"}


ACCEPTED = {
    "smallest": jobset(),
    "empty": {"metadata": {"name": "js"}, "spec": {}},
    "nothing": {"metadata": {"name": "js"}},
    "no-replicas": jobset(rjob(replicas=None)),
    "zero": jobset(rjob(replicas=0)),
    "many": jobset(rjob(replicas=MAX_JOBS)),
    "subdomain": jobset(network={"subdomain": "sub-1"}),
    "reserved-manager": jobset(managedBy="jobset.sigs.k8s.io/jobset-controller"),
    "manager": jobset(managedBy="acme.io/foo_Bar"),
    "rule": jobset(failurePolicy=rules({"name": "superAwesome_rule"})),
    "every-reason": jobset(
        failurePolicy=rules({"name": "a", "onJobFailureReasons": [
            "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes",
            "MaxFailedIndexesExceeded", "PodFailurePolicy", "HostMaintenance",
        ]})
    ),
    "any-pattern": jobset(
        failurePolicy=rules({"name": "a", "onJobFailureMessagePatterns": ["(a|b)+$", ""]})
    ),
    "custom-reasons": jobset(
        failurePolicy=rules(
            {"name": "a", "onJobFailureReasons": ["PodFailurePolicy2", "Deadline", "a:b"]}
        )
    ),
    "1024": jobset(rjob(replicas=1024), failurePolicy=rules({"name": "a", "action": "RestartJob"})),
    "depend-1": chain([], ["rj-1"], ["rj-1"]),
    "depend-2": chain([], ["rj-1"], ["rj-2"]),
    "depend-both": chain([], [], ["rj-1", "rj-2"]),
    "depend-self": chain([], ["rj-2"]),
    "coordinator": jobset(
        rjob(job=TWO_PODS), coordinator={"replicatedJob": "w", "jobIndex": 0, "podIndex": 1}
    ),
    "claim": jobset(mounting("d"), volumeClaimPolicies=[claim_policy("d")]),
    "claim-init": jobset(
        mounting("d", kind="initContainers"), volumeClaimPolicies=[claim_policy("d")]
    ),
    "claim-no-policy": jobset(volumeClaimPolicies=[]),
    "in-place": in_place(),
    "in-place-two": two_in_place(),
    "in-place-one-in-order": {
        **in_place(),
        "spec": {**in_place()["spec"], "startupPolicy": ORDERED},
    },
    "in-place-seeds-name": in_place(pod=agent("RestartPod")),
    "supervisor": in_place(
        pod={"containers": [{"name": "w", "env": [{"name": "JOBSET_NAME"}, {"name": "POD_NAME"}]}]}
    ),
    "group": jobset(rjob("a"), rjob("b"), groupSchedulingConfig={"targetReplicatedJobs": ["b"]}),
    "group-depends-on-another": jobset(
        rjob("a"),
        rjob("b", dependsOn=[{"name": "a", "status": "Ready"}]),
        rjob("c"),
        groupSchedulingConfig={"targetReplicatedJobs": ["b", "c"]},
    ),
    "group-claim": jobset(
        mounting("d"), volumeClaimPolicies=[claim_policy("d")], groupSchedulingConfig={}
    ),
    "group-one-in-order": jobset(
        rjob("a"),
        rjob("b"),
        startupPolicy=ORDERED,
        groupSchedulingConfig={"targetReplicatedJobs": ["b"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("obj", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(obj):
    """A JobSet that breaks no rule, including the gaps of the rules."""
    assert validate_create(obj) == []


@pytest.mark.parametrize("action", ["RestartJob", "RestartReplicatedJobAndIgnoreMaxRestarts"])
def test_partial_restarts_are_accepted_when_only_other_replicated_jobs_are_large(action):
    """Only Jobs of targets are counted separately in the status."""
    large, small = rjob("large", replicas=1025), rjob("small")
    only_small = {"name": "a", "action": action, "targetReplicatedJobs": ["small"]}
    others = {"name": "b", "action": "FailJobSet"}

    assert validate_create(jobset(large, small, failurePolicy=rules(only_small, others))) == []
    both = {**only_small, "targetReplicatedJobs": ["small", "large"]}
    assert len(validate_create(jobset(large, small, failurePolicy=rules(both)))) == 1


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("BackOffLimitExceeded", "its own is BackoffLimitExceeded"),
        ("PodFailurPolicy", "its own is PodFailurePolicy"),
        ("BackoffLimitExceeded", ""),
        ("OutOfMemory", ""),
    ],
)
def test_reason_close_to_a_built_in_one_causes_a_warning(reason, hint):
    """It is accepted, as it may be a custom reason or a misspelled one."""
    obj = jobset(failurePolicy=rules({"name": "r", "onJobFailureReasons": [reason]}))
    found = [(each.field, hint in each.message) for each in warnings(obj, Features())]

    assert validate_create(obj) == []
    assert found == ([(f"{RULES}[0].onJobFailureReasons[0]", True)] if hint else [])


def test_only_the_impossible_dependency_is_reported():
    """The other dependency of the same ReplicatedJob is valid."""
    problems = validate_create(chain([], ["rj-3", "rj-1"], []))
    assert [problem.message for problem in problems] == [
        "Internal error: replicatedJob: rj-2 cannot depend on replicatedJob: rj-3"
    ]


@pytest.mark.parametrize(
    "action",
    [
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
        "RestartReplicatedJob",
        "RestartReplicatedJobAndIgnoreMaxRestarts",
    ],
)
def test_partial_restarts_need_their_feature_gate(action):
    """If it is disabled there is one problem, and the rest of the policy is not checked."""
    obj = jobset(failurePolicy=rules({"name": "", "action": action}), managedBy="x")
    problems = validate_create(obj, features=Features(restart_job=False))
    assert [problem.field for problem in problems] == ["spec.managedBy", "<nil>"]
    assert f"{action} " in f"{problems[1].message} "


def test_restart_in_place_needs_its_feature_gate():
    """If it is disabled the strategy is refused, and its other rules are not checked."""
    problems = validate_create(in_place(backoffLimit=1), features=Features(in_place_restart=False))
    assert [problem.cause for problem in problems] == ["InternalError"]
    assert "gate" in problems[0].message


@pytest.mark.parametrize(
    ("mode", "names", "fields"),
    [
        ("NonIndexed", ["exclusive-topology"], [f"{JOBS}[0].template.spec.completionMode"]),
        ("NonIndexed", ["exclusive-topology", "node-selector"], []),
        ("NonIndexed", [], []),
        ("Indexed", ["exclusive-topology"], []),
    ],
)
def test_exclusive_placement_needs_indexes_when_pods_follow_a_leader(mode, names, fields):
    """With node selectors there is no leader, which is the pod with index 0."""
    obj = jobset(rjob(job={"completionMode": mode}))
    obj["metadata"]["annotations"] = {f"alpha.jobset.sigs.k8s.io/{name}": "x" for name in names}
    assert [problem.field for problem in validate_create(obj)] == fields


@pytest.mark.parametrize(
    ("keep", "present", "fields"),
    [
        ("Retain", {"spec": SPEC}, []),
        ("Delete", {"spec": SPEC}, ["spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted"]),
        (
            "Retain",
            {"spec": {**SPEC, "accessModes": ["ReadWriteMany"]}},
            ["spec.volumeClaimPolicies[0].template[0].spec"],
        ),
        ("Retain", {"spec": {**SPEC, "resources": {"requests": {"storage": "1024Mi"}}}}, []),
        ("Retain", {"spec": {**SPEC, "volumeMode": "Filesystem", "storageClassName": "x"}}, []),
        ("Retain", TimeoutError("timed out"), ["spec.volumeClaimPolicies[0].template[0]"]),
        ("Delete", None, []),
    ],
)
def test_existing_claim_is_reused_only_when_it_is_equal_and_retained(keep, present, fields):
    """Quantities are compared by value."""
    obj = jobset(mounting("d"), volumeClaimPolicies=[claim_policy("d", keep=keep)])
    assert claims_to_look_up(obj) == ["d-js"]
    assert [p.field for p in validate_create(obj, claims={"d-js": present})] == fields


def test_no_claim_is_looked_up_for_a_generated_name():
    """The name of the claim is not known yet."""
    obj = jobset(mounting("d"), generate_name="a-", volumeClaimPolicies=[claim_policy("d")])
    assert claims_to_look_up(obj) == []


@pytest.mark.parametrize(
    ("metadata", "length", "start"),
    [
        ({"name": "js", "generateName": "x-"}, 2, "js"),
        ({"generateName": "a" * 60}, 63, "a" * 58),
        ({"generateName": "ab-"}, 8, "ab-"),
        ({}, 0, ""),
    ],
)
def test_effective_name_is_given_or_has_the_length_of_a_generated_one(metadata, length, start):
    """The API server shortens the prefix of a generated name."""
    name = effective_name(metadata)
    assert len(name) == length
    assert name.startswith(start)


def test_all_problems_are_reported_in_the_order_of_the_rules():
    """One request is enough to see all of them."""
    obj = jobset(
        rjob(groupName="A", dependsOn=[]),
        network={"subdomain": "A"},
        managedBy="x",
        coordinator={"replicatedJob": "nope"},
    )
    assert [problem.field for problem in validate_create(obj)] == [
        "<nil>",
        "spec.network.subdomain",
        "spec.network.subdomain",
        "spec.managedBy",
        "spec.replicatedJobs[0].groupName",
        "<nil>",
    ]


def test_largest_jobset_is_checked_quickly():
    """Even if it has thousands of problems with a huge value each."""
    jobs = [mounting(*(f"m{n}" for n in range(2000)))] + [rjob(f"j{n}") for n in range(100)]
    policies = [claim_policy(*(f"d{n}-{k}" for k in range(50))) for n in range(50)]
    began = time.process_time()
    problems = validate_create(jobset(*jobs, volumeClaimPolicies=policies))
    assert time.process_time() - began < 2
    assert len(problems) == 2500
    assert max(len(problem.message) for problem in problems) < 500


def test_too_many_tolerations_are_refused():
    """API servers compare each with all others at every change of a pod."""
    many = [{"key": f"k{n}", "operator": "Exists"} for n in range(1001)]

    assert validate_create(jobset(rjob(pod={"tolerations": many[1:]}))) == []
    (problem,) = validate_create(jobset(rjob("a"), rjob("b", pod={"tolerations": many})))
    path = "spec.replicatedJobs[1].template.spec.template.spec.tolerations"
    assert (problem.field, problem.cause) == (path, "FieldValueTooMany")
    assert problem.message == "Too many: 1001: must have at most 1000 items"
