"""Detection of agents in the pods of a JobSet that restarts in place, and of their restart rules."""

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.validation.agents import has_agent, warnings
from jobsetpy.reconcilers.rules.agent_containers import runs_agent
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update

POD = "spec.replicatedJobs[0].template.spec.template.spec"
AGENT, RULES = f"{POD}.initContainers[0]", f"{POD}.initContainers[0].restartPolicyRules"
SHOWN = 256
"""Maximum length of a warning; the API server may cut longer ones."""


def rule(operator: str = "NotIn", *values: int, action: str = "RestartAllContainers") -> dict:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


def env(*names: str, **values: str) -> list[dict]:
    return [{"name": name, "value": "x"} for name in names] + [
        {"name": name, "value": value} for name, value in values.items()
    ]


NEEDED = env("NAMESPACE", "POD_NAME", "JOBSET_NAME")
SIDECAR = {"name": "agent", "restartPolicy": "Always", "restartPolicyRules": [rule("In", 42)]}
RESTART = [rule("In", 42, action="Restart")]
GOOD = {
    "name": "agent",
    "image": "test.invalid/any:1",
    "restartPolicy": "Always",
    "restartPolicyRules": [rule("NotIn", 0, 1, 2)],
    "startupProbe": {"httpGet": {"path": "/barrier-is-lifted?wait=25", "port": 8080}},
    "env": [*NEEDED, *env(RESTART_POD_IN_PLACE_EXIT_CODE="42")],
}
WORKER = {"name": "worker", "image": "i", "restartPolicyRules": [rule("NotIn", 0)]}


def sidecar(**fields) -> dict:
    """Return a pod with a valid agent that has other fields; ``None`` removes a field."""
    agent = {name: value for name, value in {**GOOD, **fields}.items() if value is not None}
    return {"initContainers": [agent], "containers": [WORKER]}


def exit_code(value: str) -> list[dict]:
    return [*NEEDED, *env(RESTART_POD_IN_PLACE_EXIT_CODE=value)]


def jobset(pod: dict, **job) -> dict:
    template = {
        "backoffLimit": keys.INT32_MAX,
        "podReplacementPolicy": "Failed",
        "completions": 2,
        "parallelism": 2,
        "template": {"spec": pod},
        **job,
    }
    return {
        "metadata": {"name": "js"},
        "spec": {
            "failurePolicy": {"restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "w", "template": {"spec": template}}],
        },
    }


def warned(obj: dict) -> list[tuple[str, str]]:
    found = warnings(obj, Features())
    assert all(len(str(each)) <= SHOWN for each in found)
    return [(each.field, each.message) for each in found]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"initContainers": [SIDECAR]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": [{"action": "RestartPod"}]}]}, True),
        ({"initContainers": [{"name": "first"}, SIDECAR]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": [*RESTART, {"action": "RestartPod"}]}]}, True),
        ({"initContainers": [{**SIDECAR, "restartPolicy": "Never"}]}, False),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": RESTART}]}, False),
        ({"initContainers": [{**SIDECAR, "restartPolicyRules": None}]}, False),
        ({"containers": [SIDECAR]}, False),
        ({"containers": [{"name": "w", "env": env("POD_NAME", "JOBSET_NAME")}]}, True),
        ({"containers": [{"name": "w", "env": env("JOBSET_AGENT_POD_NAME", "JOBSET_AGENT_JOBSET_NAME")}]}, True),
        ({"containers": [{"name": "w", "command": ["/jobset-agent/supervise", "true"]}]}, True),
        ({"containers": [{"name": "w", "env": env("POD_NAME")}]}, False),
        ({"containers": [{"name": "v", "env": env("JOBSET_NAME")}, {"name": "w", "env": env("POD_NAME")}]}, False),
        ({"containers": [{"name": "w"}]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_pod_may_have_an_agent_or_not_when_its_containers_are(pod, expected):
    """A sidecar by the kubelet's rule, under both of its names; a supervisor by its variables."""
    assert has_agent(pod) is expected


def always(**fields) -> dict:
    return {"initContainers": [{"name": "x", "restartPolicy": "Always", **fields}]}


def worker(**fields) -> dict:
    return {"containers": [{"name": "w", **fields}]}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (always(name="jobset-agent"), True),
        (always(image="test.invalid/x/jobsetpy-agent:1.0"), True),
        (always(image="test.invalid:5000/jobsetpy-agent@sha256:00"), True),
        (always(image="jobsetpy-agent"), True),
        (always(env=NEEDED, restartPolicyRules=[rule("In", 42)]), True),
        (always(env=NEEDED), False),
        (always(startupProbe={"httpGet": {"path": "/barrier-is-lifted?wait=25"}}), True),
        (always(restartPolicyRules=[rule("NotIn", 0)]), False),
        (always(name="agent", restartPolicyRules=[rule("In", 42)]), False),
        (always(env=env("NAMESPACE", "POD_NAME"), restartPolicyRules=[rule("In", 42)]), False),
        (always(name="jobset-agent", restartPolicy=None), False),
        (worker(env=NEEDED), False),
        (worker(image="jobsetpy-agent", command=["python3", "train.py", "supervise"]), False),
        (worker(command=["/jobset-agent/supervise", "true"]), True),
        (worker(args=["supervise", "--", "true"]), True),
        (worker(command=["python3", "-m", "jobsetpy.agent", "supervise", "--", "true"]), True),
        (worker(command=["sh", "-c", "exec /jobset-agent/supervise python3 train.py"]), True),
        (worker(command=["/jobset-agent/ld.so", "--inhibit-cache"]), True),
        (always(startupProbe={"httpGet": {"path": "/barrier-is-down", "port": 8081}}), True),
        (worker(env=[*env("POD_NAME", "JOBSET_NAME"), *env(WORKER_COMMAND="train")]), True),
        (worker(env=[*env("POD_NAME"), *env(WORKER_COMMAND="train")]), False),
        ({}, False),
    ],
)
def test_pod_certainly_runs_an_agent_or_not_when_its_containers_are(pod, expected):
    """Name, image, variables or barrier identify a sidecar, its command a supervisor; no rule does."""
    assert runs_agent(pod) is expected


def test_no_warning_is_returned_for_a_valid_agent():
    """Nor for a worker's rule, or a JobSet that is restarted in another way."""
    assert validate_create(jobset(sidecar())) == []
    assert warned(jobset(sidecar())) == []
    bad = jobset(sidecar(startupProbe=None))
    assert warnings(bad, Features(in_place_restart=False)) == []
    del bad["spec"]["failurePolicy"]
    assert warnings(bad, Features()) == []


GO_BARRIER = {"httpGet": {"path": "/barrier-is-down", "port": 8081}}
GO_NAMES = env("POD_NAME", "JOBSET_NAME")


def test_no_warning_is_returned_for_agents_of_the_go_project():
    """As sidecar or in the worker's own container; it requests a restart with exit code 1."""
    rules = [rule("NotIn", 0)]
    sidecars = sidecar(env=GO_NAMES, startupProbe=GO_BARRIER, restartPolicyRules=rules)
    main = {**WORKER, "env": [*GO_NAMES, *env(WORKER_COMMAND="train")]}
    main["restartPolicyRules"] = [rule("NotIn", 0, action="Restart")]
    for pod in (sidecars, {"containers": [main]}):
        assert validate_create(jobset(pod)) == []
        assert warned(jobset(pod)) == []


def test_exit_code_of_a_go_agent_needs_a_rule():
    """As that of ours does."""
    code = [*GO_NAMES, *env(IN_PLACE_RESTART_EXIT_CODE="7")]
    fields = {"env": code, "startupProbe": GO_BARRIER, "restartPolicyRules": [rule("In", 1, 137)]}
    (problem,) = validate_create(jobset(sidecar(**fields)))
    assert "ends with 7 (IN_PLACE_RESTART_EXIT_CODE)" in str(problem)


POLICY = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [4]}}]}
IN_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
NAMED = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "worker", **rule("NotIn", 4)["exitCodes"]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [4]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
}  # fmt: skip
WARNED = {
    "no startup probe": (sidecar(startupProbe=None), f"{AGENT}.startupProbe", "without waiting"),
    "killed": (sidecar(restartPolicyRules=[rule("In", 42)]), RULES, "(137) comes back alone"),
    "killed, by the first rule": (sidecar(restartPolicyRules=[rule("In", 137, action="Restart"), rule("NotIn", 0)]), RULES, "NotIn [0, 1, 2]"),
    "seeds' action": (sidecar(restartPolicyRules=[rule("NotIn", 0, 1, 2, action="RestartPod")]), f"{RULES}[0].action", "use RestartAllContainers"),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "field", "words"), WARNED.values(), ids=WARNED)
def test_warning_is_returned_for(pod, field, words):
    """Specs that work in some cases are accepted, with the field and what to write instead."""
    obj = jobset(pod)
    ((found, text),) = warned(obj)

    assert found == field
    assert words in text
    assert validate_create(obj) == []


@pytest.mark.parametrize(("policy", "count"), [(POLICY, 1), (IN_42, 1), (NAMED, 0)])
def test_warning_is_returned_when_a_pod_failure_policy_names_no_container(policy, count):
    """It mistakes the agent's exit code for a worker's."""
    found = warned(jobset(sidecar(), podFailurePolicy=policy))

    assert len(found) == count
    assert all(field.endswith("rules[0].onExitCodes.containerName") for field, _ in found)


REFUSED = {
    "code": (sidecar(env=exit_code("43"), restartPolicyRules=[rule("In", 42)]), RULES, "ends with 43"),
    "harmless code": (sidecar(env=exit_code("1")), RULES, "ends with 1"),
    "code of an earlier rule": (sidecar(restartPolicyRules=[*RESTART, rule("NotIn", 0)]), RULES, "ends with 42"),
    "no rule for a known agent": (sidecar(restartPolicyRules=None), RULES, "needs a rule"),
    "another rule for a known agent": (sidecar(restartPolicyRules=RESTART), RULES, "needs a rule"),
    "NoIn": (sidecar(restartPolicyRules=[rule("NotIn", 0), rule("NoIn", 1)]), f"{RULES}[1].exitCodes.operator", "use NotIn"),
    "Terminate": ({**sidecar(), "containers": [{**WORKER, "restartPolicyRules": [rule("In", 3, action="Terminate")]}]}, f"{POD}.containers[0].restartPolicyRules[0].action", "remove the rule"),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_agent_is_refused_for(pod, field, words):
    """It could never restart its pod in place; the error has the field and advice."""
    (problem,) = validate_create(jobset(pod))

    assert problem.field == field
    assert words in problem.message


@pytest.mark.parametrize(("pod", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_stored_jobset_can_be_changed_although_it_has(pod, field, words):
    """Only a new JobSet is refused: one that older rules accepted can still be updated."""
    old = jobset(pod)
    new = {**old, "spec": {**old["spec"], "suspend": True}}

    assert validate_update(old, new) == []


def test_log_shipper_is_not_mistaken_for_an_agent():
    """A sidecar that has an agent's variables, next to a supervisor or an agent."""
    shipper = {"name": "logs", "restartPolicy": "Always", "env": exit_code("9")}
    supervisor = {**WORKER, "command": ["/jobset-agent/supervise", "true"]}
    both = {**sidecar(), "initContainers": [{**shipper, "env": NEEDED}, GOOD]}
    for pod in ({"initContainers": [shipper], "containers": [supervisor]}, both):
        assert validate_create(jobset(pod)) == []
        assert warned(jobset(pod)) == []


@pytest.mark.parametrize("value", ["", "$(CODE)", "x", None])
def test_exit_code_is_not_checked_when_its_value_is_unknown(value):
    """It may be valid; only the rule is known here."""
    variable = {"name": "RESTART_POD_IN_PLACE_EXIT_CODE", "value": value, "valueFrom": {}}

    assert validate_create(jobset(sidecar(env=[*NEEDED, variable]))) == []


LIMITED = {"name": "scratch", "emptyDir": {"sizeLimit": "5Mi"}}
IN_MEMORY = {"name": "shm", "emptyDir": {"sizeLimit": "5Mi", "medium": "Memory"}}
STORED = {**WORKER, "resources": {"limits": {"ephemeral-storage": "1Gi"}}}
FUSE = {"name": "gke-gcsfuse-sidecar", "restartPolicy": "Always"}
SURROUNDINGS = {
    "a folder with a limit": ({"volumes": [IN_MEMORY, LIMITED]}, ["spec.volumes[1].emptyDir.sizeLimit"]),
    "a container with a limit": (
        {"containers": [STORED]}, ["spec.containers[0].resources.limits[ephemeral-storage]"]
    ),
    "a sidecar that mounts once": (
        {"initContainers": [*sidecar()["initContainers"], FUSE]}, ["spec.initContainers[1]"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SURROUNDINGS)
def test_warning_is_returned_for_a_sidecar_agent_beside(case):
    """The kubelet's end of such a pod looks like a success, or its volumes do not come back."""
    fields, expected = SURROUNDINGS[case]
    found = [field for field, _ in warned(jobset({**sidecar(), **fields}))]

    assert found == [f"{POD.removesuffix('.spec')}.{field}" for field in expected]


def test_warning_is_returned_for_volumes_that_are_mounted_once_by_annotation():
    """The sidecar itself is added to pods only, after admission of the JobSet."""
    obj = jobset(sidecar())
    template = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {"gke-gcsfuse/volumes": "true"}}

    ((field, words),) = warned(obj)
    assert field.endswith("template.metadata.annotations[gke-gcsfuse/volumes]")
    assert "use the mode supervisor" in words


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({}, False),
        ({"livenessProbe": {"exec": {}}, "restartPolicy": "Never"}, True),
        ({"livenessProbe": {"exec": {}}}, False),
        (
            {"livenessProbe": {"exec": {}}, "restartPolicy": "Never",
             "restartPolicyRules": [rule("In", 0)]},
            False,
        ),
    ],
)  # fmt: skip
def test_warning_is_returned_for_a_liveness_probe_when_exit_code_0_ends_the_worker(fields, warned):
    """The kubelet ends the worker with SIGTERM; exit code 0 after that completes its index."""
    pod = sidecar()
    pod["containers"] = [{**WORKER, **fields}]

    found = [one for one in warnings(jobset(pod), Features()) if "livenessProbe" in str(one)]

    assert len(found) == warned
