"""Injection of the agent into JobSets that request it: added fields, and errors."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.supervisor.output.part import load
from jobsetpy.api import keys
from jobsetpy.api.keys import LOG_RULES_ANNOTATION as LOG_RULES
from jobsetpy.api.keys import PROGRESS_PATTERN_ANNOTATION as PATTERN
from jobsetpy.api.log_lines import BUILT_IN, LogRule
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.validation.restart_settings import (
    restart_settings_update,
)
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.testing import json_patch
from support.restarts.injection_kit import (
    IMAGE,
    WORKER,
    fields_of,
    job,
    job_of,
    jobset,
    pod_of,
    variables_of,
)

BOTH = pytest.mark.parametrize("mode", ["sidecar", "supervisor"])


def injected(obj: dict, image: str = IMAGE) -> dict:
    """Return the JobSet with its agent; the patch and the returned object must agree."""
    before = copy.deepcopy(obj)
    injection = inject(obj, image=image)
    assert injection.problems == []
    assert obj == before
    assert json_patch(obj, injection.patch) == injection.jobset
    return injection.jobset


def supervised(*jobs: dict, at: int = 0, **more) -> dict:
    """Return the supervisor's variables after its injection."""
    return variables_of(injected(supervisor(*jobs, **more)), at)


def problem_of(obj: dict):
    """Return the only error of the injection."""
    (problem,) = inject(obj, image=IMAGE).problems
    return problem


IDENTITY = {
    "NAMESPACE": "metadata.namespace",
    "POD_NAME": "metadata.name",
    "JOBSET_NAME": "metadata.annotations['jobset.sigs.k8s.io/jobset-name']",
    "JOBSET_UID": "metadata.annotations['jobset.sigs.k8s.io/jobset-uid']",
}


def test_sidecar_is_injected_as_an_init_container():
    """Which keeps running, with barrier, rules and environment."""
    pod = pod_of(injected(jobset()))
    (agent,) = pod["initContainers"]
    (worker,) = pod["containers"]

    assert agent["image"] == IMAGE
    assert agent["restartPolicy"] == "Always"
    assert agent["restartPolicyRules"] == [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, 1, 2]}}
    ]
    assert agent["startupProbe"] == {
        "httpGet": {"path": "/barrier-is-lifted?wait=25", "port": 8080},
        "periodSeconds": 1,
        "timeoutSeconds": 30,
        "failureThreshold": keys.INT32_MAX,
    }
    exit_code = {"RESTART_POD_IN_PLACE_EXIT_CODE": "42", "BARRIER_PORT": "8080"}
    assert fields_of(agent["env"]) == IDENTITY | exit_code
    assert "resources" not in agent
    assert worker == WORKER | {
        "restartPolicy": "Never",
        "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
        ],
    }
    assert "volumes" not in pod


def test_supervisor_is_injected_in_front_of_the_command():
    """An init container installs it into a volume."""
    pod = pod_of(injected(jobset(mode="supervisor")))
    (install,) = pod["initContainers"]
    (worker,) = pod["containers"]
    mount = {"name": "jobset-agent", "mountPath": "/jobset-agent"}

    assert install["image"] == IMAGE
    assert install["args"] == ["install", "/jobset-agent"]
    assert install["volumeMounts"] == [mount]
    assert "restartPolicy" not in install
    assert worker["command"] == ["/jobset-agent/supervise", "python3", "train.py"]
    assert worker["volumeMounts"] == [{**mount, "readOnly": True}]
    own = IDENTITY | {"AGENT_LOG": "problems"}
    assert fields_of(worker["env"]) == {f"JOBSET_AGENT_{k}": v for k, v in own.items()}
    assert "restartPolicyRules" not in worker
    assert pod["volumes"] == [{"name": "jobset-agent", "emptyDir": {"sizeLimit": "128Mi"}}]


@BOTH
def test_account_policies_and_security_profile_are_set_in_both_modes(mode):
    """And the fields of the Job."""
    obj = injected(jobset(mode=mode))
    pod, template = pod_of(obj), job_of(obj)
    (agent,) = pod["initContainers"]

    assert pod["serviceAccountName"] == "jobset-agent"
    assert pod["automountServiceAccountToken"] is True
    assert pod["restartPolicy"] == "Never"
    assert (template["backoffLimit"], template["podReplacementPolicy"]) == (2**31 - 1, "Failed")
    assert (template["parallelism"], template["completions"]) == (1, 1)
    context = agent["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert agent["imagePullPolicy"] == "IfNotPresent"


@BOTH
@pytest.mark.parametrize(("own", "user"), [(None, None), (1000, None), (0, 65532)])
def test_agent_states_a_user_only_when_the_pods_user_is_root(mode, own, user):
    """A platform that assigns users refuses others; root would be refused by runAsNonRoot."""
    obj = jobset(mode=mode)
    if own is not None:
        pod_of(obj)["securityContext"] = {"runAsUser": own}
    (agent,) = pod_of(injected(obj))["initContainers"]

    assert agent["securityContext"].get("runAsUser") == user
    assert agent["securityContext"].get("runAsGroup") == user


@BOTH
def test_agent_is_not_injected_twice(mode):
    """A JobSet may be copied from a cluster, agent included."""
    obj = injected(jobset(mode=mode))

    assert inject(obj, image="test.invalid/other:2").patch == []


COUNTS = [
    ({}, (1, 1)),
    ({"parallelism": 4}, (4, 4)),
    ({"completions": 4}, (4, 4)),
    ({"parallelism": 4, "completions": 4}, (4, 4)),
    ({"parallelism": 4, "completions": 8}, (4, 8)),
    ({"parallelism": 0}, (0, 0)),
]


@pytest.mark.parametrize(("counts", "expected"), COUNTS)
def test_missing_parallelism_or_completions_is_set_to_the_other_one(counts, expected):
    """Validation refuses numbers that differ."""
    obj = injected(jobset(job(**counts)))
    template = job_of(obj)

    assert (template["parallelism"], template["completions"]) == expected
    refused = any(problem.field.endswith(".completions") for problem in validate_create(obj))
    assert refused is (expected[0] != expected[1])


@pytest.mark.parametrize(
    ("field", "value"), [("backoffLimit", 6), ("podReplacementPolicy", "TerminatingOrFailed")]
)
def test_fields_of_the_user_are_refused_and_not_replaced(field, value):
    """By validation's own rule, if the value is not possible."""
    obj = injected(jobset(job(**{field: value})))

    assert job_of(obj)[field] == value
    (problem,) = validate_create(obj)
    assert problem.field == f"spec.replicatedJobs[0].template.spec.{field}"


ENV = [{"name": name, "value": "x"} for name in ("NAMESPACE", "POD_NAME", "JOBSET_NAME")]


def test_existing_agent_is_kept():
    """Its ReplicatedJob only gets fields of its Job; others get an agent."""
    rules = [{"action": "RestartPod"}]
    own = [{"name": "mine", "restartPolicy": "Always", "restartPolicyRules": rules, "env": ENV}]
    jobs = (
        job("a", pod={"initContainers": own}),
        worker_with(command=["/elsewhere/supervise", "true"]),
    )
    obj = injected(jobset(*jobs, job("c")))

    assert pod_of(obj, 0)["initContainers"] == own
    assert "initContainers" not in pod_of(obj, 1)
    assert [each["name"] for each in pod_of(obj, 2)["initContainers"]] == ["jobset-agent"]
    assert {job_of(obj, at)["backoffLimit"] for at in range(3)} == {keys.INT32_MAX}


@BOTH
def test_sidecar_with_a_restart_rule_is_no_agent(mode):
    """It may be a user's proxy that restarts all containers when it fails."""
    codes = {"operator": "NotIn", "values": [0]}
    proxy = {
        "name": "proxy",
        "image": "test.invalid/proxy:1",
        "restartPolicy": "Always",
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": codes}],
        "env": ENV[:2],
    }
    obj = injected(jobset(job(pod={"initContainers": [proxy]}), mode=mode))

    assert [each["name"] for each in pod_of(obj)["initContainers"]] == ["proxy", "jobset-agent"]
    assert validate_create(json_patch(obj, default_jobset(obj))) == []


def test_worker_is_no_agent_when_it_has_variables_with_its_pod():
    """Variables such as POD_NAME are common in workers."""
    (worker,) = pod_of(injected(supervisor(worker_with(env=ENV))))["containers"]

    assert worker["env"][:3] == ENV
    assert len(worker["env"]) == 8


def test_fields_of_the_user_are_kept():
    """Restart policy, account, rules and lists; injected items follow those of the user."""
    own = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}]
    worker = {**WORKER, "restartPolicy": "OnFailure", "restartPolicyRules": own}
    pod = {
        "restartPolicy": "OnFailure",
        "serviceAccountName": "train-jobset-agent",
        "initContainers": [{"name": "download"}],
        "volumes": [{"name": "data"}],
    }
    obj = pod_of(injected(jobset(job(pod=pod, containers=[worker]))))

    assert obj["containers"] == [worker]
    assert (obj["restartPolicy"], obj["serviceAccountName"]) == ("OnFailure", "train-jobset-agent")
    assert [each["name"] for each in obj["initContainers"]] == ["download", "jobset-agent"]
    volumes = pod_of(injected(supervisor(job(pod=pod))))["volumes"]
    assert [each["name"] for each in volumes] == ["data", "jobset-agent"]


TWO = [WORKER, {"name": "logs", "image": "l"}]
NAME = keys.IN_PLACE_CONTAINER_ANNOTATION


@pytest.mark.parametrize(
    ("notes", "template_notes", "ruled"),
    [
        ({}, {}, ["worker", "logs"]),
        ({NAME: "worker"}, {}, ["worker"]),
        ({NAME: "worker"}, {NAME: "logs"}, ["logs"]),
    ],
)
def test_all_containers_get_a_rule_unless_one_is_named(notes, template_notes, ruled):
    """The failure of each restarts the pod."""
    pod = pod_of(injected(jobset(job(containers=TWO, notes=template_notes), notes=notes)))

    assert [c["name"] for c in pod["containers"] if "restartPolicyRules" in c] == ruled


def test_named_container_is_supervised():
    """Or the only one of a ReplicatedJob."""
    jobs = job("a", containers=TWO), job("b", containers=[{"name": "driver", "command": ["d"]}])
    obj = injected(supervisor(*jobs, notes={NAME: "worker"}))
    commands = [c.get("command", [])[:1] for c in pod_of(obj)["containers"]]

    assert commands == [["/jobset-agent/supervise"], []]
    assert pod_of(obj, 1)["containers"][0]["command"] == ["/jobset-agent/supervise", "d"]


GRACE, CODES = keys.IN_PLACE_GRACE_ANNOTATION, keys.IN_PLACE_END_CODES_ANNOTATION
PORT = keys.IN_PLACE_BARRIER_PORT_ANNOTATION
HANG, FIRST = keys.IN_PLACE_HANG_ANNOTATION, keys.IN_PLACE_HANG_FIRST_ANNOTATION
DUMP = keys.IN_PLACE_HANG_SIGNAL_ANNOTATION
AFTER = keys.AFTER_SUCCESS_ANNOTATION
SECTIONS = keys.IN_PLACE_HANG_SECTIONS_ANNOTATION
HEALTH = keys.IN_PLACE_HEALTH_ANNOTATION
HEALTH_SECONDS = keys.IN_PLACE_HEALTH_SECONDS_ANNOTATION
HEALTH_INTERVAL = keys.IN_PLACE_HEALTH_INTERVAL_ANNOTATION
LIMIT, ASK = keys.MAX_WITHOUT_PROGRESS_ANNOTATION, keys.RESTART_IN_PLACE_ANNOTATION


def policy(action: str, operator: str = "In", **codes) -> dict:
    on = {"operator": operator, "values": [4, 3], **codes}
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": on}]}}


@pytest.mark.parametrize(
    ("notes", "template", "expected"),
    [
        ({CODES: "7, 5"}, {}, [5, 7]),
        ({}, policy("FailJob"), [3, 4]),
        ({}, policy("FailIndex", containerName="worker"), [3, 4]),
        ({CODES: "9"}, policy("FailJob"), [3, 4, 9]),
        ({}, policy("FailJob", containerName="jobset-agent"), []),
        ({}, policy("Count"), []),
        ({}, policy("FailJob", "NotIn"), []),
    ],
)
def test_exit_codes_that_end_the_pod_are_those_of_user_and_job(notes, template, expected):
    """Those in the annotation, and those that the Job's own policy has to handle."""
    sidecar = pod_of(injected(jobset(job(**template), notes=notes)))["containers"][0]
    found = supervised(job(**template), notes=notes)

    (rule,) = sidecar["restartPolicyRules"]
    assert rule["exitCodes"] == {"operator": "NotIn", "values": [0, *expected]}
    assert found.get("END_POD_EXIT_CODES", "") == ",".join(map(str, expected))


def test_supervisor_gets_grace_period_and_stop_signal():
    """From the annotation, and from the container's field in Kubernetes."""
    worker = {**WORKER, "lifecycle": {"stopSignal": "SIGUSR1"}}
    found = supervised(job(containers=[worker], notes={GRACE: "45"}), notes={GRACE: "5"})

    assert (found["WORKER_GRACE_SECONDS"], found["WORKER_STOP_SIGNAL"]) == ("45", "SIGUSR1")


def test_supervisor_gets_the_limits_for_hangs():
    """A pod template's annotations take precedence over the JobSet's."""
    found = supervised(job(notes={HANG: "60"}), notes={HANG: "300", FIRST: "1800", DUMP: "usr1"})

    assert (found["HANG_SECONDS"], found["HANG_FIRST_SECONDS"]) == ("60", "1800")
    assert found["HANG_SIGNAL"] == "usr1"


def test_supervisor_gets_the_limits_for_hangs_by_section():
    """Unchanged, as ``auto``; with that the first limit may be any."""
    sections = "checkpoint=600,evaluate=1200"
    found = supervised(notes={HANG: "auto", FIRST: "20", SECTIONS: sections})

    assert (found["HANG_SECONDS"], found["HANG_SECTIONS"]) == ("auto", sections)


@pytest.mark.parametrize(
    ("notes", "ports", "expected"),
    [({}, [], 8080), ({}, [8080, 8081], 8082), ({PORT: "9999"}, [8080], 9999)],
)
def test_barrier_port_is_an_unused_or_the_requested_one(notes, ports, expected):
    """Unused means that no container declares it."""
    ports = [{"containerPort": port} for port in ports]
    (agent,) = pod_of(injected(jobset(worker_with(ports=ports), notes=notes)))["initContainers"]

    assert agent["startupProbe"]["httpGet"]["port"] == expected
    assert fields_of(agent["env"])["BARRIER_PORT"] == str(expected)
    assert [each["containerPort"] for each in agent["ports"]] == [expected]


@pytest.mark.parametrize(
    ("resources", "limited"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, True),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, True),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, False),
        ({}, False),
    ],
)
def test_agent_has_limits_when_the_pod_is_guaranteed(resources, limited):
    """The pod keeps its class of service."""
    (agent,) = pod_of(injected(jobset(worker_with(resources=resources))))["initContainers"]
    own = agent.get("resources", {})

    assert ("limits" in own) is limited
    assert own.get("limits", own.get("requests")) == own.get("requests")


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({}, None),
        ({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}, None),
        ({"requests": {"cpu": "1"}}, {"cpu": "10m"}),
        ({"limits": {"cpu": "1"}}, {"cpu": "10m"}),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, {"cpu": "10m", "memory": "32Mi"}),
    ],
)
@BOTH
def test_agent_requests_only_resources_that_the_pod_requests(mode, resources, requests):
    """A ClusterQueue without memory would never admit a pod whose agent alone requests it."""
    obj = injected(jobset(worker_with(resources=resources), mode=mode))
    (agent,) = pod_of(obj)["initContainers"]

    assert agent.get("resources", {}).get("requests") == requests


POD = "spec.replicatedJobs[0].template.spec.template.spec"


def note(name: str, of_template: bool = False) -> str:
    path = "spec.replicatedJobs[0].template.spec.template." if of_template else ""
    return f"{path}metadata.annotations[{name}]"


def supervisor(*jobs: dict, **more) -> dict:
    return jobset(*jobs, mode="supervisor", **more)


def worker_with(**fields) -> dict:
    return job(containers=[{**WORKER, **fields}])


ENDING_RULE = "[{name: x, line: y, then: end-pod}]"
REFUSED = {
    "strategy": (jobset(strategy="Recreate"), "spec.failurePolicy.restartStrategy", "set it, or remove the annotation"),
    "no command": (supervisor(worker_with(command=[])), f"{POD}.containers[0].command", 'use "sidecar"'),
    "liveness": (supervisor(worker_with(livenessProbe={})), f"{POD}.containers[0].livenessProbe", "remove the probe"),
    "startup": (supervisor(worker_with(startupProbe={})), f"{POD}.containers[0].startupProbe", "remove the probe"),
    "which": (supervisor(job(containers=TWO)), note(NAME, True), "name the worker"),
    "unknown name": (supervisor(job(containers=TWO), notes={NAME: "x"}), note(NAME), "no container of this name"),
    "unknown name in a template": (jobset(job(notes={NAME: "x"})), note(NAME, True), "no container of this name"),
    "container": (jobset(job(containers=[{**WORKER, "name": "jobset-agent"}])), f"{POD}.containers[0].name", "choose another"),
    "init": (jobset(job(pod={"initContainers": [{"name": "jobset-agent"}]})), f"{POD}.initContainers[0].name", "choose another"),
    "volume": (supervisor(job(pod={"volumes": [{"name": "jobset-agent"}]})), f"{POD}.volumes[0].name", "choose another"),
    "mount": (supervisor(worker_with(volumeMounts=[{"name": "x", "mountPath": "/jobset-agent/"}])), f"{POD}.containers[0].volumeMounts[0].mountPath", "choose another"),
    "variable": (supervisor(worker_with(env=[{"name": "JOBSET_AGENT_X"}])), f"{POD}.containers[0].env[0].name", "choose another"),
    "token": (jobset(job(pod={"automountServiceAccountToken": False})), f"{POD}.automountServiceAccountToken", "remove the field"),
    "codes on failure": (supervisor(job(pod={"restartPolicy": "OnFailure"}), notes={CODES: "3"}), f"{POD}.restartPolicy", "only with restartPolicy Never"),
    "grace of a sidecar": (jobset(notes={GRACE: "1"}), note(GRACE), "no effect in sidecar mode"),
    "hang of a sidecar": (jobset(notes={HANG: "1"}), note(HANG), "no effect in sidecar mode"),
    "first alone": (supervisor(notes={FIRST: "9"}), note(FIRST), f"no effect without the annotation {HANG}"),
    "first too short": (supervisor(job(notes={FIRST: "9"}), notes={HANG: "10"}), note(FIRST, True), "must not be less than"),
    "sections alone": (supervisor(notes={SECTIONS: "checkpoint=600"}), note(SECTIONS), "no effect without"),
    **{f"{name} alone": (supervisor(notes={name: "2"}), note(name), "no effect") for name in (HEALTH_SECONDS, HEALTH_INTERVAL)},
    "health on failure": (supervisor(job(pod={"restartPolicy": "OnFailure"}), notes={HEALTH: "true"}), f"{POD}.restartPolicy", "unfit"),
    "rules on failure": (supervisor(job(pod={"restartPolicy": "OnFailure"}), notes={LOG_RULES: ENDING_RULE}), f"{POD}.restartPolicy", "rule 'x' ends the pod"),
    "pattern of a sidecar": (jobset(notes={PATTERN: "auto"}), note(PATTERN), "does not see the worker's output"),
    "pattern with a terminal": (supervisor(worker_with(tty=True), notes={PATTERN: "auto"}), note(PATTERN), "has a terminal"),
    "pattern of another engine": (supervisor(notes={PATTERN: "(?=a)"}), note(PATTERN), "not all engines"),
    "pattern that RE2 has not": (supervisor(notes={PATTERN: "a{1001}"}), note(PATTERN), "RE2"),
    "misspelled framework": (supervisor(notes={PATTERN: "megatorn"}), note(PATTERN), 'did you mean "megatron"?'),
    "rules that are no YAML": (supervisor(notes={LOG_RULES: "["}), note(LOG_RULES), "is no YAML"),
    "rule without a line": (supervisor(notes={LOG_RULES: "- name: x"}), note(LOG_RULES), "[0].line"),
    "rule that RE2 has not": (supervisor(notes={LOG_RULES: "[{name: x, line: 'a{1001}'}]"}), note(LOG_RULES), "rule 'x'"),
    "port of a supervisor": (supervisor(notes={PORT: "1"}), note(PORT), "no effect in supervisor mode"),
    "taken port": (jobset(worker_with(ports=[{"containerPort": 9}]), notes={PORT: "9"}), note(PORT), "another container"),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_jobset_is_refused_for(obj, field, words):
    """With the field and the remedy."""
    problem = problem_of(obj)

    assert (problem.field, inject(obj, image=IMAGE).patch) == (field, [])
    assert words in problem.message


def test_jobset_is_refused_when_the_manager_has_no_image():
    """Unless the agent is already in the pod template."""
    (problem,) = inject(jobset(), image="").problems

    assert "--agent-image" in problem.message
    assert inject(injected(jobset()), image="").problems == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "x", "worker", "5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "command", "env", "ports", "resources", "limits", "spec", "rules"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    mode=st.sampled_from(["sidecar", "supervisor"]),
    pod=st.dictionaries(
        st.sampled_from(["containers", "initContainers", "volumes", "restartPolicy"]), JSON
    ),
    template=st.dictionaries(
        st.sampled_from(["backoffLimit", "completions", "parallelism", "podFailurePolicy"]), JSON
    ),
    notes=st.dictionaries(st.sampled_from([NAME, GRACE, CODES, PORT]), JSON, max_size=2),
)
def test_injection_never_fails_for_any_object(mode, pod, template, notes):
    """It does not modify its input, and adds nothing a second time."""
    body = {"template": {"spec": pod, "metadata": {"annotations": notes}}}
    obj = jobset({"name": "w", "template": {"spec": {**template, **body}}}, mode=mode)
    before = json.dumps(obj)
    injection = inject(obj, image=IMAGE)

    assert json.dumps(obj) == before
    assert not (injection.patch and injection.problems)
    if not injection.problems:
        assert json_patch(obj, injection.patch) == injection.jobset
        assert inject(injection.jobset, image="test.invalid/2").patch == []


NO_SUPERVISOR = "only supervisors report steps, and no container runs one"
RECREATED = {"mode": None, "strategy": "Recreate"}


@pytest.mark.parametrize(
    ("obj", "field", "words"),
    [
        (jobset(notes={LIMIT: "3"}), note(LIMIT), NO_SUPERVISOR),
        (jobset(notes={AFTER: "Recreate"}, **RECREATED), note(AFTER), "InPlaceRestart"),
        (jobset(notes={LIMIT: "3"}, **RECREATED), note(LIMIT), "InPlaceRestart"),
        (jobset(notes={ASK: "x"}, **RECREATED), note(ASK), "InPlaceRestart"),
        (jobset(mode=None, notes={HANG: "3"}), note(HANG), "an agent in the pod template"),
        (
            jobset(job(notes={DUMP: "SIGUSR1"}), mode=None),
            note(DUMP, True),
            "an agent in the pod template",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_annotations_about_progress_are_refused_when_they_have_no_effect(obj, field, words):
    """No supervisor can serve them."""
    injection = inject(obj, image=IMAGE)
    problems = validate_create(json_patch(injection.jobset, default_jobset(injection.jobset)))

    assert any(each.field == field and words in each.message for each in problems), problems


def test_annotations_about_progress_are_accepted_when_they_have_an_effect():
    """All of them with a supervisor; a group with sidecars restarts on request, too."""
    both = {LIMIT: "3", ASK: "2026-01-01", AFTER: "Recreate"}
    for mode, notes in (("supervisor", {**both, HANG: "60"}), ("sidecar", {ASK: "x" * 1000})):
        obj = injected(jobset(mode=mode, notes=notes))
        obj = json_patch(obj, default_jobset(obj))
        assert validate_create(obj) == []
        again = copy.deepcopy(obj)
        again["metadata"]["annotations"][ASK] = "again"
        assert list(restart_settings_update(obj, again)) == []
        recreate = copy.deepcopy(again)
        recreate["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
        fields = [each.field for each in restart_settings_update(obj, recreate)]
        assert [field for field in fields if ASK in field] == [note(ASK)]
        assert list(restart_settings_update(recreate, recreate)) == []


# ---- standby processes and processes of workers --------------------------------------------------

PRELOAD = keys.IN_PLACE_PRELOAD_ANNOTATION
PROCESSES = keys.IN_PLACE_PROCESSES_ANNOTATION
STANDBY = keys.IN_PLACE_STANDBY_ANNOTATION
DELAY = keys.IN_PLACE_STANDBY_DELAY_ANNOTATION


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({PRELOAD: "torch, transformers"}, {"STANDBY": "on", "PRELOAD": "torch,transformers"}),
        ({STANDBY: "on"}, {"STANDBY": "on"}),
        ({STANDBY: "program"}, {"STANDBY": "program"}),
        ({PRELOAD: "auto"}, {"STANDBY": "on", "PRELOAD": "auto"}),
        ({PRELOAD: "torch", STANDBY: "off"}, {"STANDBY": "off", "PRELOAD": "torch"}),
        (
            {PRELOAD: "torch", DELAY: "5"},
            {"STANDBY": "on", "PRELOAD": "torch", "STANDBY_DELAY_SECONDS": "5"},
        ),
        ({}, {}),
    ],
)
def test_supervisor_gets_the_settings_of_standby_processes(notes, expected):
    """The worker's command is kept."""
    done = injected(supervisor(notes=notes))
    found = variables_of(done).items()
    own = {name.removeprefix("WORKER_"): v for name, v in found if name.startswith("WORKER_")}

    assert own == expected
    (worker,) = pod_of(done)["containers"]
    assert worker["command"] == [keys.AGENT_PROGRAM, "python3", "train.py"]


def test_dollar_signs_of_a_health_command_are_doubled():
    """The kubelet would expand variables in its value otherwise."""
    notes = {HEALTH: 'test -z "$(nvidia-smi)" && echo $$', HEALTH_SECONDS: "0.5"}
    found = supervised(notes=notes | {HEALTH_INTERVAL: "0"})

    assert found["HEALTH_COMMAND"] == 'test -z "$$(nvidia-smi)" && echo $$$$'
    assert (found["HEALTH_SECONDS"], found["HEALTH_INTERVAL_SECONDS"]) == ("0.5", "0")


def test_rules_reach_the_agent_as_json_when_they_are_given_in_yaml():
    """Durations are seconds, and the agent reads what admission wrote."""
    rules = "- {name: x, line: 'a$', within: 5m, then: report}"
    found = supervised(notes={LOG_RULES: rules, PATTERN: "auto", DUMP: "usr1"})
    patterns = load(
        {name: found[name].replace("$$", "$") for name in ("LOG_RULES", "PROGRESS_PATTERN")}
    )

    assert patterns.rules == [LogRule(name="x", line="a$", within=300.0, then="report")]
    assert (patterns.progress, found["HANG_SIGNAL"]) == (BUILT_IN, "usr1")


@pytest.mark.parametrize("mode", ["sidecar", None])
def test_health_command_is_refused_without_a_supervisor(mode):
    """A sidecar runs nothing in the worker's container."""
    obj = jobset(mode=mode, notes={HEALTH: "true"})
    problems = inject(obj, image=IMAGE).problems if mode else check_annotations(obj).errors

    assert HEALTH in str(problems[0])
    assert "no effect" in str(problems[0])


def test_ranks_count_through_all_pods_with_processes():
    """The coordinator's pod has the first one."""
    obj = supervisor(
        job("a", replicas=3, parallelism=2, notes={PROCESSES: "4"}),
        job("b", parallelism=3),
        job("c", completions=5, notes={PROCESSES: "8"}),
        coordinator={"replicatedJob": "c", "podIndex": 2},
        network={"subdomain": "net"},
    )
    done = injected(obj)
    first, second, third = (variables_of(done, at) for at in range(3))
    own = {name: v for name, v in third.items() if name not in {*IDENTITY, "AGENT_LOG"}}

    assert "WORKER_PROCESSES" not in second
    assert own == {
        "WORKER_JOB_INDEX": "metadata.annotations['jobset.sigs.k8s.io/job-index']",
        "WORKER_POD_INDEX": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        "WORKER_PROCESSES": "8",
        "WORKER_WORLD_SIZE": str(3 * 2 * 4 + 5 * 8),
        "WORKER_FIRST_RANK": str(3 * 2 * 4),
        "WORKER_MASTER_RANK": str(3 * 2 * 4 + 2 * 8),
        "WORKER_JOB_PODS": "5",
        "MASTER_ADDR": "$(JOBSET_AGENT_JOBSET_NAME)-c-0-2.net",
    }
    assert (first["WORKER_FIRST_RANK"], first["WORKER_JOB_PODS"]) == ("0", "2")
    address = supervised(notes={PROCESSES: "2"})["MASTER_ADDR"]
    assert address == "$(JOBSET_AGENT_JOBSET_NAME)-w-0-0.$(JOBSET_AGENT_JOBSET_NAME)"


TORCH, PAIR = {"notes": {PRELOAD: "torch"}}, {"notes": {PROCESSES: "2"}}


@pytest.mark.parametrize(
    ("obj", "field", "error"),
    [
        (jobset(**TORCH), PRELOAD, "sidecar"),
        (supervisor(notes={PRELOAD: "torch;"}), PRELOAD, '"auto", names of Python'),
        (
            supervisor(worker_with(command=["torchrun"], args=["train.py"]), **TORCH),
            PRELOAD,
            "'torchrun' is not Python. Write",
        ),
        (
            supervisor(worker_with(command=["python", "-u"], args=["-c", "1"]), **TORCH),
            PRELOAD,
            "a text (-c)",
        ),
        (supervisor(notes={STANDBY: "yes"}), STANDBY, '"on", "off"'),
        (supervisor(notes={STANDBY: "program", PRELOAD: "auto"}), PRELOAD, "no effect"),
        (supervisor(notes={DELAY: "5"}), DELAY, "no effect"),
        (supervisor(notes={PROCESSES: "0"}), PROCESSES, "from 1 to 64"),
        (supervisor(notes={PROCESSES: "65"}), PROCESSES, "from 1 to 64"),
        (
            supervisor(job(completionMode="NonIndexed"), **PAIR),
            "spec.replicatedJobs[0].template.spec.completionMode",
            "Indexed",
        ),
        (
            supervisor(worker_with(env=[{"name": "RANK", "value": "1"}]), **PAIR),
            "env[0].name",
            "remove the variable",
        ),
    ],
)
def test_invalid_settings_of_standby_and_worker_processes_are_refused(obj, field, error):
    """With the annotation or field, and its valid values."""
    problems = inject(obj, image=IMAGE).problems

    assert any(field in each.field and error in str(each) for each in problems), problems


def test_processes_are_refused_when_the_first_rank_is_unknown():
    """The coordinator has no ranks, or pods have no DNS names."""
    jobs = job("a"), job("b", **PAIR)
    assert (
        problem_of(supervisor(*jobs, coordinator={"replicatedJob": "a"})).field
        == "spec.coordinator.replicatedJob"
    )

    obj = supervisor(**PAIR, network={"enableDNSHostnames": False})
    assert problem_of(obj).field.endswith("env[MASTER_ADDR]")
    pod_of(obj)["containers"][0]["env"] = [{"name": "MASTER_ADDR", "value": "here"}]
    assert "MASTER_ADDR" not in variables_of(injected(obj))
