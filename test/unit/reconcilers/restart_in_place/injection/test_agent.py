"""Adding the in-place restart agent to JobSets that ask for it: what is added, and what is refused."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.protocol import settings as agent_settings
from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection import pods as injection_pods
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.validation.progress import progress as progress_problems
from jobsetpy.reconcilers.restart_in_place.validation.progress import progress_update
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset

IMAGE = "test.invalid/agent:1"
MODE = keys.IN_PLACE_AGENT_ANNOTATION
WORKER = {"name": "worker", "image": "test.invalid/train:1", "command": ["python3", "train.py"]}


def job(name: str = "w", *, pod=None, notes=None, containers=None, **fields) -> dict:
    """A ReplicatedJob of ordinary training: ``fields`` are the Job's, ``pod`` the pod's."""
    template = {"spec": {"containers": containers or [copy.deepcopy(WORKER)], **(pod or {})}}
    if notes:
        template["metadata"] = {"annotations": notes}
    return {"name": name, "template": {"spec": {"template": template, **fields}}}


def jobset(*jobs: dict, mode="sidecar", notes=None, strategy="InPlaceRestart") -> dict:
    annotations = {**({} if mode is None else {MODE: mode}), **(notes or {})}
    return {
        "metadata": {"name": "js", "annotations": annotations},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": strategy},
            "replicatedJobs": list(jobs) or [job()],
        },
    }


def applied(obj: dict, patch: list[dict]) -> dict:
    """The object after a JSON patch of additions and replacements."""
    out = copy.deepcopy(obj)
    for operation in patch:
        *parents, last = operation["path"].split("/")[1:]
        at = out
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert operation["op"] == "add" or last in at
        at[last] = operation["value"]
    return out


def injected(obj: dict, image: str = IMAGE) -> dict:
    """The JobSet with its agent; the patch and the returned object must agree."""
    before = copy.deepcopy(obj)
    injection = inject(obj, image=image)
    assert injection.problems == []
    assert obj == before
    assert applied(obj, injection.patch) == injection.jobset
    return injection.jobset


def pod_of(obj: dict, at: int = 0) -> dict:
    return obj["spec"]["replicatedJobs"][at]["template"]["spec"]["template"]["spec"]


def job_of(obj: dict, at: int = 0) -> dict:
    return obj["spec"]["replicatedJobs"][at]["template"]["spec"]


def fields_of(env: list[dict]) -> dict:
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in env
    }


IDENTITY = {
    "NAMESPACE": "metadata.namespace",
    "POD_NAME": "metadata.name",
    "JOBSET_NAME": "metadata.annotations['jobset.sigs.k8s.io/jobset-name']",
    "JOBSET_UID": "metadata.annotations['jobset.sigs.k8s.io/jobset-uid']",
}


def test_the_sidecar():
    """The agent as an init container that stays, with barrier, rules and environment."""
    pod = pod_of(injected(jobset()))
    (agent,) = pod["initContainers"]
    (worker,) = pod["containers"]

    assert agent["image"] == IMAGE
    assert agent["restartPolicy"] == "Always"
    assert agent["restartPolicyRules"] == [
        {
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "NotIn", "values": [0, 1, 2]},
        }
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


def test_the_supervisor():
    """The worker's command behind the agent's, which an init container puts into a volume."""
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


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_what_both_modes_set(mode):
    """Account, token, restart policy, the Job's fields, and the restricted security profile."""
    obj = injected(jobset(mode=mode))
    pod, template = pod_of(obj), job_of(obj)
    (agent,) = pod["initContainers"]

    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (
        "jobset-agent",
        True,
    )
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


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(("own", "user"), [(None, None), (1000, None), (0, 65532)])
def test_agent_states_a_user_only_when_the_pods_user_is_root(mode, own, user):
    """A platform that assigns users refuses others; root would be refused by runAsNonRoot."""
    obj = jobset(mode=mode)
    if own is not None:
        pod_of(obj)["securityContext"] = {"runAsUser": own}
    (agent,) = pod_of(injected(obj))["initContainers"]

    assert agent["securityContext"].get("runAsUser") == user
    assert agent["securityContext"].get("runAsGroup") == user


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_it_is_accepted(mode):
    """Injected and defaulted, an ordinary JobSet passes validation."""
    obj = injected(jobset(job("a"), job("b", parallelism=4, backoffLimit=0), mode=mode))
    obj = applied(obj, default_jobset(obj))

    assert validate_create(obj) == []
    assert job_of(obj, 1)["completionMode"] == "Indexed"


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_twice_is_once(mode):
    """A JobSet copied from a cluster, agent included, gets no second one."""
    obj = injected(jobset(mode=mode))

    assert inject(obj, image="test.invalid/other:2").patch == []


@pytest.mark.parametrize("strategy", ["InPlaceRestart", "Recreate"])
def test_nothing_without_the_annotation(strategy):
    """It is off by default."""
    injection = inject(jobset(mode=None, strategy=strategy), image=IMAGE)

    assert (injection.patch, injection.problems) == ([], [])


COUNTS = [
    ({}, (1, 1)),
    ({"parallelism": 4}, (4, 4)),
    ({"completions": 4}, (4, 4)),
    ({"parallelism": 4, "completions": 4}, (4, 4)),
    ({"parallelism": 4, "completions": 8}, (4, 8)),
    ({"parallelism": 0}, (0, 0)),
]


@pytest.mark.parametrize(("given_counts", "wanted"), COUNTS)
def test_counts(given_counts, wanted):
    """The one that is missing becomes the other; what differs is validation's to refuse."""
    template = job_of(injected(jobset(job(**given_counts))))

    assert (template["parallelism"], template["completions"]) == wanted
    problems = validate_create(injected(jobset(job(**given_counts))))
    refused = any(problem.field.endswith(".completions") for problem in problems)
    assert refused is (wanted[0] != wanted[1])


@pytest.mark.parametrize(
    ("field", "value"), [("backoffLimit", 6), ("podReplacementPolicy", "TerminatingOrFailed")]
)
def test_what_the_user_wrote_is_refused_and_not_replaced(field, value):
    """A value that cannot be kept is told to the user, by validation's own rule."""
    obj = injected(jobset(job(**{field: value})))

    assert job_of(obj)[field] == value
    (problem,) = validate_create(obj)
    assert problem.field == f"spec.replicatedJobs[0].template.spec.{field}"


def test_an_agent_that_is_there_stays():
    """A ReplicatedJob written out by hand only gets its Job's fields; the other gets an agent."""
    env = [{"name": name, "value": "x"} for name in ("NAMESPACE", "POD_NAME", "JOBSET_NAME")]
    by_hand = {
        "initContainers": [
            {
                "name": "mine",
                "restartPolicy": "Always",
                "restartPolicyRules": [{"action": "RestartPod"}],
                "env": env,
            }
        ]
    }
    supervised = {**WORKER, "command": ["/elsewhere/supervise", "true"]}
    obj = injected(jobset(job("a", pod=by_hand), job("b", containers=[supervised]), job("c")))

    assert pod_of(obj, 0)["initContainers"] == by_hand["initContainers"]
    assert "initContainers" not in pod_of(obj, 1)
    assert [each["name"] for each in pod_of(obj, 2)["initContainers"]] == ["jobset-agent"]
    assert {job_of(obj, at)["backoffLimit"] for at in range(3)} == {keys.INT32_MAX}


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_a_sidecar_with_a_restart_rule_is_no_agent(mode):
    """A user's proxy that has everything restarted when it fails does not keep the agent away."""
    codes = {"operator": "NotIn", "values": [0]}
    proxy = {
        "name": "proxy",
        "image": "test.invalid/proxy:1",
        "restartPolicy": "Always",
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": codes}],
        "env": [{"name": "POD_NAME", "value": "x"}, {"name": "NAMESPACE", "value": "x"}],
    }
    obj = injected(jobset(job(pod={"initContainers": [proxy]}), mode=mode))

    assert [each["name"] for each in pod_of(obj)["initContainers"]] == ["proxy", "jobset-agent"]
    assert validate_create(applied(obj, default_jobset(obj))) == []


def test_a_worker_that_knows_its_pod_is_no_agent():
    """Variables such as POD_NAME are common in workers."""
    env = [{"name": name, "value": "x"} for name in ("POD_NAME", "JOBSET_NAME", "NAMESPACE")]
    obj = injected(jobset(job(containers=[{**WORKER, "env": env}]), mode="supervisor"))
    (worker,) = pod_of(obj)["containers"]

    assert worker["env"][:3] == env
    assert len(worker["env"]) == 8


def test_users_choices_stay():
    """Restart policy, account, own rules and other lists are kept; ours comes after theirs."""
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
    supervised = pod_of(injected(jobset(job(pod=pod), mode="supervisor")))
    assert [each["name"] for each in supervised["volumes"]] == ["data", "jobset-agent"]


@pytest.mark.parametrize(
    ("policy", "kept"), [(None, "Never"), ("Never", "Never"), ("OnFailure", "OnFailure")]
)
def test_a_workers_own_restart_policy_stays(policy, kept):
    """It holds for the codes that no rule names; the rule that restarts all is added all the same."""  # fmt: skip
    (worker,) = pod_of(injected(jobset(worker_with(restartPolicy=policy))))["containers"]

    assert worker["restartPolicy"] == kept
    assert [rule["action"] for rule in worker["restartPolicyRules"]] == ["RestartAllContainers"]


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
def test_several_containers_next_to_a_sidecar(notes, template_notes, ruled):
    """The failure of each restarts the pod, unless one is named."""
    pod = pod_of(injected(jobset(job(containers=TWO, notes=template_notes), notes=notes)))

    assert [c["name"] for c in pod["containers"] if "restartPolicyRules" in c] == ruled


def test_one_of_several_is_supervised():
    """The named one; with a single container in another ReplicatedJob, that one."""
    alone = {"name": "driver", "command": ["d"]}
    obj = injected(
        jobset(job("a", containers=TWO), job("b", containers=[alone]), mode="supervisor", notes={NAME: "worker"})
    )  # fmt: skip

    assert [c.get("command", [])[:1] for c in pod_of(obj)["containers"]] == [
        ["/jobset-agent/supervise"],
        [],
    ]
    assert pod_of(obj, 1)["containers"][0]["command"] == ["/jobset-agent/supervise", "d"]


GRACE, CODES = keys.IN_PLACE_GRACE_ANNOTATION, keys.IN_PLACE_END_CODES_ANNOTATION
PORT = keys.IN_PLACE_BARRIER_PORT_ANNOTATION
HANG, FIRST = keys.IN_PLACE_HANG_ANNOTATION, keys.IN_PLACE_HANG_FIRST_ANNOTATION
DUMP = keys.IN_PLACE_HANG_SIGNAL_ANNOTATION
AFTER = keys.AFTER_SUCCESS_ANNOTATION
LIMIT, ASK = keys.MAX_WITHOUT_PROGRESS_ANNOTATION, keys.RESTART_IN_PLACE_ANNOTATION


def policy(action: str, operator: str = "In", **codes) -> dict:
    on = {"operator": operator, "values": [4, 3], **codes}
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": on}]}}


@pytest.mark.parametrize(
    ("notes", "template", "wanted"),
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
def test_exit_codes_that_end_the_pod(notes, template, wanted):
    """Those the user lists, and those that the Job's own policy has to see."""
    sidecar = pod_of(injected(jobset(job(**template), notes=notes)))["containers"][0]
    supervised = pod_of(injected(jobset(job(**template), notes=notes, mode="supervisor")))
    variables = fields_of(supervised["containers"][0]["env"])

    (rule,) = sidecar["restartPolicyRules"]
    assert rule["exitCodes"] == {"operator": "NotIn", "values": [0, *wanted]}
    assert variables.get("JOBSET_AGENT_END_POD_EXIT_CODES", "") == ",".join(map(str, wanted))


def test_grace_period_and_stop_signal():
    """From the annotation, and from where Kubernetes has it."""
    worker = {**WORKER, "lifecycle": {"stopSignal": "SIGUSR1"}}
    obj = jobset(job(containers=[worker], notes={GRACE: "45"}), mode="supervisor", notes={GRACE: "5"})  # fmt: skip
    variables = fields_of(pod_of(injected(obj))["containers"][0]["env"])

    assert variables["JOBSET_AGENT_WORKER_GRACE_SECONDS"] == "45"
    assert variables["JOBSET_AGENT_WORKER_STOP_SIGNAL"] == "SIGUSR1"


def test_hangs():
    """From the annotations, a pod template's in front of the JobSet's."""
    notes = {HANG: "300", FIRST: "1800", DUMP: "usr1"}
    obj = jobset(job(notes={HANG: "60"}), mode="supervisor", notes=notes)
    variables = fields_of(pod_of(injected(obj))["containers"][0]["env"])

    assert [variables[f"JOBSET_AGENT_HANG_{name}"] for name in ("SECONDS", "FIRST_SECONDS", "SIGNAL")] == ["60", "1800", "usr1"]  # fmt: skip


SECTIONS = keys.IN_PLACE_HANG_SECTIONS_ANNOTATION


def test_hangs_by_section_and_by_what_was_seen():
    """Both go to the supervisor as they are; a first time beside ``auto`` may be any."""
    notes = {HANG: "auto", FIRST: "20", SECTIONS: "checkpoint=600,evaluate=1200"}
    variables = fields_of(pod_of(injected(jobset(mode="supervisor", notes=notes)))["containers"][0]["env"])  # fmt: skip

    assert variables["JOBSET_AGENT_HANG_SECONDS"] == "auto"
    assert variables["JOBSET_AGENT_HANG_SECTIONS"] == "checkpoint=600,evaluate=1200"


@pytest.mark.parametrize(
    ("notes", "name", "said"),
    [
        ({SECTIONS: "checkpoint=600"}, SECTIONS, "no effect without"),
        ({HANG: "5", SECTIONS: "checkpoint"}, SECTIONS, "words with whole seconds"),
        ({HANG: "5", SECTIONS: ""}, SECTIONS, "words with whole seconds"),
        ({HANG: "auto", FIRST: "auto"}, FIRST, "whole number"),
        ({HANG: "often"}, HANG, 'or "auto"'),
    ],
)
def test_hangs_that_cannot_be(notes, name, said):
    """The annotation is named, and what it may be."""
    (problem,) = inject(jobset(mode="supervisor", notes=notes), image=IMAGE).problems

    assert (problem.field, said in problem.message) == (note(name), True)


@pytest.mark.parametrize(
    ("notes", "ports", "wanted"),
    [({}, [], 8080), ({}, [8080, 8081], 8082), ({PORT: "9999"}, [8080], 9999)],
)
def test_barrier_port(notes, ports, wanted):
    """A port that no other container declares, or the one that is asked for."""
    worker = {**WORKER, "ports": [{"containerPort": port} for port in ports]}
    (agent,) = pod_of(injected(jobset(job(containers=[worker]), notes=notes)))["initContainers"]

    assert agent["startupProbe"]["httpGet"]["port"] == wanted
    assert fields_of(agent["env"])["BARRIER_PORT"] == str(wanted)
    assert [each["containerPort"] for each in agent["ports"]] == [wanted]


@pytest.mark.parametrize(
    ("resources", "limited"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, True),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, True),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, False),
        ({}, False),
    ],
)
def test_the_class_of_a_guaranteed_pod_stays(resources, limited):
    """Next to containers with limits equal to their requests the agent has such limits too."""
    worker = {**WORKER, "resources": resources}
    (agent,) = pod_of(injected(jobset(job(containers=[worker]))))["initContainers"]
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
@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_the_agent_asks_for_what_the_pod_asks_for(mode, resources, requests):
    """A ClusterQueue without memory would never admit a pod whose agent alone asks for it."""
    worker = {**WORKER, "resources": resources}
    (agent,) = pod_of(injected(jobset(job(containers=[worker]), mode=mode)))["initContainers"]

    assert agent.get("resources", {}).get("requests") == requests


POD = "spec.replicatedJobs[0].template.spec.template.spec"


def note(name: str, of_template: bool = False) -> str:
    path = "spec.replicatedJobs[0].template.spec.template." if of_template else ""
    return f"{path}metadata.annotations[{name}]"


def supervisor(*jobs: dict, **more) -> dict:
    return jobset(*jobs, mode="supervisor", **more)


def worker_with(**fields) -> dict:
    return job(containers=[{**WORKER, **fields}])


REFUSED = {
    "mode": (jobset(mode="both"), note(MODE), '"sidecar" or "supervisor"'),
    "no mode": (jobset(mode=""), note(MODE), '"sidecar" or "supervisor"'),
    "strategy": (jobset(strategy="Recreate"), "spec.failurePolicy.restartStrategy", "set it, or remove the annotation"),
    "no command": (supervisor(worker_with(command=[])), f"{POD}.containers[0].command", 'use "sidecar"'),
    "liveness": (supervisor(worker_with(livenessProbe={})), f"{POD}.containers[0].livenessProbe", "remove the probe"),
    "startup": (supervisor(worker_with(startupProbe={})), f"{POD}.containers[0].startupProbe", "remove the probe"),
    "which": (supervisor(job(containers=TWO)), note(NAME, True), "name the worker"),
    "nobody": (supervisor(job(containers=TWO), notes={NAME: "x"}), note(NAME), "no container of this name"),
    "nobody here": (jobset(job(notes={NAME: "x"})), note(NAME, True), "no container of this name"),
    "container": (jobset(job(containers=[{**WORKER, "name": "jobset-agent"}])), f"{POD}.containers[0].name", "choose another"),
    "init": (jobset(job(pod={"initContainers": [{"name": "jobset-agent"}]})), f"{POD}.initContainers[0].name", "choose another"),
    "volume": (supervisor(job(pod={"volumes": [{"name": "jobset-agent"}]})), f"{POD}.volumes[0].name", "choose another"),
    "mount": (supervisor(worker_with(volumeMounts=[{"name": "x", "mountPath": "/jobset-agent/"}])), f"{POD}.containers[0].volumeMounts[0].mountPath", "choose another"),
    "variable": (supervisor(worker_with(env=[{"name": "JOBSET_AGENT_X"}])), f"{POD}.containers[0].env[0].name", "choose another"),
    "token": (jobset(job(pod={"automountServiceAccountToken": False})), f"{POD}.automountServiceAccountToken", "remove the field"),
    "codes": (jobset(notes={CODES: "0"}), note(CODES), "from 1 to 255"),
    "more codes": (jobset(job(notes={CODES: "1;2"})), note(CODES, True), "from 1 to 255"),
    "many codes": (jobset(notes={CODES: ",".join(map(str, range(1, 100)))}), note(CODES), "at most 64"),
    "codes on failure": (supervisor(job(pod={"restartPolicy": "OnFailure"}), notes={CODES: "3"}), f"{POD}.restartPolicy", "only with restartPolicy Never"),
    "grace": (supervisor(notes={GRACE: "-1"}), note(GRACE), "from 0 to 86400"),
    "no grace": (supervisor(notes={GRACE: ""}), note(GRACE), "from 0 to 86400"),
    "long grace": (supervisor(notes={GRACE: "86401"}), note(GRACE), "from 0 to 86400"),
    "grace of a sidecar": (jobset(notes={GRACE: "1"}), note(GRACE), "no effect in sidecar mode"),
    **{f"hang {value!r}": (supervisor(notes={HANG: value}), note(HANG), "from 1 to 604800") for value in ("", "0", "-1", "1.5", "5m", "٣", "604801", "9" * 5000)},
    "hang of a sidecar": (jobset(notes={HANG: "1"}), note(HANG), "no effect in sidecar mode"),
    "first alone": (supervisor(notes={FIRST: "9"}), note(FIRST), f"no effect without the annotation {HANG}"),
    "first too short": (supervisor(job(notes={FIRST: "9"}), notes={HANG: "10"}), note(FIRST, True), "must not be less than"),
    "signal": (supervisor(notes={HANG: "9", DUMP: "SIGKILL"}), note(DUMP), "can be caught"),
    "no signal": (supervisor(notes={HANG: "9", DUMP: "HUP HUP"}), note(DUMP), "can be caught"),
    "port": (jobset(notes={PORT: "0"}), note(PORT), "from 1 to 65535"),
    "port of a supervisor": (supervisor(notes={PORT: "1"}), note(PORT), "no effect in supervisor mode"),
    "taken port": (jobset(worker_with(ports=[{"containerPort": 9}]), notes={PORT: "9"}), note(PORT), "another container"),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(obj, field, words):
    """What cannot be injected is refused with its field and with what to do."""
    injection = inject(obj, image=IMAGE)

    (problem,) = injection.problems
    assert (problem.field, injection.patch) == (field, [])
    assert words in problem.message


def test_a_manager_without_an_image_refuses():
    """It cannot add what it does not know; with the agent written out there is nothing to add."""
    (problem,) = inject(jobset(), image="").problems

    assert "--agent-image" in problem.message
    assert inject(injected(jobset()), image="").problems == []


def test_all_problems_are_reported_together():
    """One attempt is enough to learn what is wrong."""
    obj = supervisor(worker_with(command=[], livenessProbe={}), job("b", containers=TWO))

    assert len(inject(obj, image=IMAGE).problems) == 3


def test_the_exit_code_is_the_agents_own():
    """The rule that restarts the pod matches what the agent ends with."""
    assert agent_settings.DEFAULT_EXIT_CODE == injection_pods.RESTART_EXIT_CODE
    assert agent_settings.DEFAULT_BARRIER_PATH == "/barrier-is-lifted"
    assert injection_pods.RESTART_EXIT_CODE not in injection_pods.HARMLESS_EXIT_CODES


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
def test_whatever_it_is_given(mode, pod, template, notes):
    """It never fails, changes nothing it was given, and adds nothing a second time."""
    body = {"template": {"spec": pod, "metadata": {"annotations": notes}}}
    obj = jobset({"name": "w", "template": {"spec": {**template, **body}}}, mode=mode)
    before = json.dumps(obj)
    injection = inject(obj, image=IMAGE)

    assert json.dumps(obj) == before
    assert not (injection.patch and injection.problems)
    if not injection.problems:
        assert applied(obj, injection.patch) == injection.jobset
        assert inject(injection.jobset, image="test.invalid/2").patch == []


NOBODY = "only supervisors report steps, and no container runs one"


@pytest.mark.parametrize(
    ("obj", "field", "words"),
    [
        (jobset(notes={LIMIT: "3"}), note(LIMIT), NOBODY),
        (jobset(notes={AFTER: "Recreate "}), note(AFTER), "one of Continue, Recreate"),
        (
            jobset(mode=None, notes={AFTER: "Recreate"}, strategy="Recreate"),
            note(AFTER),
            "InPlaceRestart",
        ),
        (jobset(mode=None, notes={LIMIT: "3"}, strategy="Recreate"), note(LIMIT), "InPlaceRestart"),
        (jobset(mode=None, notes={ASK: "x"}, strategy="Recreate"), note(ASK), "InPlaceRestart"),
        (jobset(mode=None, notes={HANG: "3"}), note(HANG), "an agent in the pod template"),
        (
            jobset(job(notes={DUMP: "x"}), mode=None),
            note(DUMP, True),
            "an agent in the pod template",
        ),
        *[
            (jobset(mode="supervisor", notes={LIMIT: value}), note(LIMIT), "from 1 to 100000")
            for value in ("", "0", "-3", "3.0", "03", "٣", "100001", "9" * 5000)
        ],
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_annotations_without_effect(obj, field, words):
    """Annotations about progress are refused where no supervisor can serve them."""
    injection = inject(obj, image=IMAGE)
    problems = validate_create(applied(injection.jobset, default_jobset(injection.jobset)))

    assert any(each.field == field and words in each.message for each in problems), problems


def test_annotations_about_progress_that_are_served():
    """With a supervisor, all of them; a sidecar's group restarts on request, too."""
    both = {LIMIT: "3", ASK: "2026-01-01", AFTER: "Recreate"}
    for mode, notes in (("supervisor", {**both, HANG: "60"}), ("sidecar", {ASK: "x" * 1000})):
        obj = jobset(mode=mode, notes=notes)
        obj = injected(obj)
        obj = applied(obj, default_jobset(obj))
        assert validate_create(obj) == []
        again = copy.deepcopy(obj)
        again["metadata"]["annotations"][ASK] = "again"
        assert progress_update(obj, again) == []
        recreate = copy.deepcopy(again)
        recreate["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
        assert [note(ASK)] == [
            each.field for each in progress_update(obj, recreate) if ASK in each.field
        ]
        assert progress_update(recreate, recreate) == []


# ---- standbys and processes

PRELOAD = keys.IN_PLACE_PRELOAD_ANNOTATION
PROCESSES = keys.IN_PLACE_PROCESSES_ANNOTATION
STANDBY = keys.IN_PLACE_STANDBY_ANNOTATION


def own_variables(obj: dict, at: int = 0) -> dict:
    """The supervisor's variables, without their prefix."""
    (worker,) = pod_of(obj, at)["containers"]
    prefix = keys.AGENT_VARIABLE_PREFIX
    found = fields_of(worker["env"])
    return {name.removeprefix(prefix): v for name, v in found.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({PRELOAD: "torch, transformers"}, {"STANDBY": "on", "PRELOAD": "torch,transformers"}),
        ({STANDBY: "on"}, {"STANDBY": "on"}),
        ({STANDBY: "program"}, {"STANDBY": "program"}),
        ({PRELOAD: "auto"}, {"STANDBY": "on", "PRELOAD": "auto"}),
        (
            {PRELOAD: "torch", STANDBY: "off"},
            {"STANDBY": "off", "PRELOAD": "torch"},
        ),
        (
            {PRELOAD: "torch", keys.IN_PLACE_STANDBY_DELAY_ANNOTATION: "5"},
            {"STANDBY": "on", "PRELOAD": "torch", "STANDBY_DELAY_SECONDS": "5"},
        ),
        ({}, {}),
    ],
)
def test_standbys(notes, expected):
    """What the supervisor is told of standbys; the worker's command stays as it is written."""
    done = injected(jobset(mode="supervisor", notes=notes))
    found = own_variables(done)

    assert {
        name.removeprefix("WORKER_"): v for name, v in found.items() if name.startswith("WORKER_")
    } == expected
    (worker,) = pod_of(done)["containers"]
    assert worker["command"] == [keys.AGENT_PROGRAM, "python3", "train.py"]


HEALTH = keys.IN_PLACE_HEALTH_ANNOTATION
HEALTH_SECONDS = keys.IN_PLACE_HEALTH_SECONDS_ANNOTATION
HEALTH_INTERVAL = keys.IN_PLACE_HEALTH_INTERVAL_ANNOTATION


def test_a_health_command():
    """The kubelet would expand variables in its value, so that dollar signs are doubled."""
    notes = {HEALTH: 'test -z "$(nvidia-smi)" && echo $$', HEALTH_SECONDS: "0.5"}
    notes[HEALTH_INTERVAL] = "0"
    found = own_variables(injected(jobset(mode="supervisor", notes=notes)))

    assert found["HEALTH_COMMAND"] == 'test -z "$$(nvidia-smi)" && echo $$$$'
    assert (found["HEALTH_SECONDS"], found["HEALTH_INTERVAL_SECONDS"]) == ("0.5", "0")


@pytest.mark.parametrize(
    ("notes", "field", "said"),
    [
        ({HEALTH: " "}, HEALTH, "must be a command line"),
        ({HEALTH: "x" * 4097}, HEALTH, "at most 4096"),
        ({HEALTH: "true\0"}, HEALTH, "must be a command line"),
        ({HEALTH: 1}, HEALTH, "must be a command line"),
        ({HEALTH: "true", HEALTH_SECONDS: "0"}, HEALTH_SECONDS, "above 0"),
        ({HEALTH: "true", HEALTH_SECONDS: "2s"}, HEALTH_SECONDS, "above 0"),
        ({HEALTH_SECONDS: "2"}, HEALTH_SECONDS, "no effect"),
        ({HEALTH_INTERVAL: "2"}, HEALTH_INTERVAL, "no effect"),
        ({HEALTH: "true", HEALTH_INTERVAL: "1m"}, HEALTH_INTERVAL, "0 for no checks of spares"),
    ],
)
def test_health_commands_that_cannot_be(notes, field, said):
    """Refused with the annotation and what would be right."""
    (problem,) = inject(jobset(mode="supervisor", notes=notes), image=IMAGE).problems

    assert field in problem.field
    assert said in str(problem)


def test_a_health_command_needs_pods_that_end():
    """A kubelet that restarts the container would keep the pod on its unfit machine."""
    obj = jobset(mode="supervisor", notes={HEALTH: "true"})
    pod_of(obj)["restartPolicy"] = "OnFailure"
    (problem,) = inject(obj, image=IMAGE).problems

    assert problem.field.endswith("template.spec.restartPolicy")
    assert "unfit" in str(problem)


@pytest.mark.parametrize("mode", ["sidecar", None])
def test_a_health_command_without_a_supervisor_is_refused(mode):
    """A sidecar runs nothing in the worker's container; without an agent nothing does."""
    obj = jobset(mode=mode, notes={HEALTH: "true"})
    problems = inject(obj, image=IMAGE).problems if mode else progress_problems(obj)

    assert HEALTH in str(problems[0])
    assert "no effect" in str(problems[0])


def test_processes():
    """Ranks count through all pods that have some; the coordinator's pod has the first one."""
    obj = jobset(
        job("a", parallelism=2, notes={PROCESSES: "4"}),
        job("b", parallelism=3),
        job("c", completions=5, notes={PROCESSES: "8"}),
        mode="supervisor",
    )
    obj["spec"]["replicatedJobs"][0]["replicas"] = 3
    obj["spec"]["coordinator"] = {"replicatedJob": "c", "podIndex": 2}
    obj["spec"]["network"] = {"subdomain": "net"}
    done = injected(obj)
    first, second, third = (own_variables(done, at) for at in range(3))

    assert "WORKER_PROCESSES" not in second
    assert {
        name: v for name, v in third.items() if name not in IDENTITY and name != "AGENT_LOG"
    } == {
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
    assert (
        own_variables(injected(jobset(mode="supervisor", notes={PROCESSES: "2"})))["MASTER_ADDR"]
        == "$(JOBSET_AGENT_JOBSET_NAME)-w-0-0.$(JOBSET_AGENT_JOBSET_NAME)"
    )


def container(**fields) -> list[dict]:
    return [{**WORKER, **fields}]


@pytest.mark.parametrize(
    ("obj", "field", "said"),
    [
        (jobset(notes={PRELOAD: "torch"}), PRELOAD, "sidecar"),
        (jobset(mode="supervisor", notes={PRELOAD: "torch;"}), PRELOAD, '"auto", names of Python'),
        (
            jobset(
                job(containers=container(command=["torchrun"], args=["train.py"])),
                mode="supervisor", notes={PRELOAD: "torch"},
            ),
            PRELOAD,
            "'torchrun' is not Python. Write",
        ),
        (
            jobset(
                job(containers=container(command=["python", "-u"], args=["-c", "1"])),
                mode="supervisor", notes={PRELOAD: "torch"},
            ),
            PRELOAD,
            "a text (-c)",
        ),
        (jobset(mode="supervisor", notes={STANDBY: "yes"}), STANDBY, '"on", "off"'),
        (
            jobset(mode="supervisor", notes={STANDBY: "program", PRELOAD: "auto"}),
            PRELOAD,
            "no effect",
        ),
        (
            jobset(mode="supervisor", notes={keys.IN_PLACE_STANDBY_DELAY_ANNOTATION: "5"}),
            keys.IN_PLACE_STANDBY_DELAY_ANNOTATION,
            "no effect",
        ),
        (jobset(mode="supervisor", notes={PROCESSES: "0"}), PROCESSES, "from 1 to 64"),
        (jobset(mode="supervisor", notes={PROCESSES: "65"}), PROCESSES, "from 1 to 64"),
        (
            jobset(job(completionMode="NonIndexed"), mode="supervisor", notes={PROCESSES: "2"}),
            "spec.replicatedJobs[0].template.spec.completionMode",
            "Indexed",
        ),
        (
            jobset(
                job(containers=container(env=[{"name": "RANK", "value": "1"}])),
                mode="supervisor", notes={PROCESSES: "2"},
            ),
            "env[0].name",
            "remove the variable",
        ),
    ],
)  # fmt: skip
def test_standbys_and_processes_that_cannot_be(obj, field, said):
    """Refused with the annotation or field, and what would be right."""
    problems = inject(obj, image=IMAGE).problems

    assert any(field in each.field and said in str(each) for each in problems), problems


def test_processes_whose_first_rank_cannot_be_found():
    """A coordinator without ranks, and pods without names."""
    obj = jobset(job("a"), job("b", notes={PROCESSES: "2"}), mode="supervisor")
    obj["spec"]["coordinator"] = {"replicatedJob": "a"}
    (problem,) = inject(obj, image=IMAGE).problems
    assert problem.field == "spec.coordinator.replicatedJob"

    obj = jobset(mode="supervisor", notes={PROCESSES: "2"})
    obj["spec"]["network"] = {"enableDNSHostnames": False}
    (problem,) = inject(obj, image=IMAGE).problems
    assert problem.field.endswith("env[MASTER_ADDR]")
    pod_of(obj)["containers"][0]["env"] = [{"name": "MASTER_ADDR", "value": "here"}]
    assert "MASTER_ADDR" not in own_variables(injected(obj))
