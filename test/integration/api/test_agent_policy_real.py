"""The admission policy for agents, with real tokens that are bound to real pods."""

import pytest
import yaml

from support import patience
from support.cluster.install import CONFIG

pytestmark = pytest.mark.cluster

EPOCH = "jobset.sigs.k8s.io/epoch"
PROGRESS = "jobset.sigs.k8s.io/progress"
FIRST = "jobset.sigs.k8s.io/first-progress"
PACE = "jobset.sigs.k8s.io/pace"
CAUSE = "jobset.sigs.k8s.io/in-place-restart-cause"
STATE = "jobset.sigs.k8s.io/in-place-restart-state"
LOG_REPORT = "jobset.sigs.k8s.io/in-place-restart-log-report"
UNHEARD = "jobset.sigs.k8s.io/in-place-restart-unheard"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
}


def documents(name):
    return list(yaml.safe_load_all((CONFIG / "agent" / name).read_text()))


class Pods:
    """Pods of one namespace, and tokens bound to them."""

    def __init__(self, api, namespace):
        self.api = api
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def make_account(self, name):
        """Create the account, role and binding of config/agent/account under another name."""
        for file in ("account/service_account.yaml", "account/role.yaml"):
            for obj in documents(file):
                obj["metadata"]["name"] = name
                for reference in (obj.get("roleRef"), *obj.get("subjects", ())):
                    if reference:
                        reference["name"] = name
                path = KINDS[obj["kind"]].format(self.namespace, name)
                self.api.apply(path, obj).accepted()

    def make(self, name, account="jobset-agent", annotations=None):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"a": "b"}, "annotations": annotations or {}},
            "spec": {
                "serviceAccountName": account,
                "containers": [{"name": "c", "image": "i"}],
                "schedulingGates": [{"name": "test.example/never"}],
            },
        }
        return self.api("POST", self.path, body).accepted()

    def token(self, account, pod=None):
        """Return a token of the account, bound to the pod if there is one."""
        spec = {"expirationSeconds": 600}
        if pod is not None:
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
            }
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return self.api("POST", path, body).accepted()["status"]["token"]

    def patch(self, name, body, **options):
        path = f"{self.path}/{name}"
        kind = "application/merge-patch+json"
        return self.api("PATCH", path, body, content_type=kind, **options)

    def patch_epoch(self, name, value, **options):
        return self.patch(name, {"metadata": {"annotations": {EPOCH: value}}}, **options)


@pytest.fixture(scope="module")
def pods(api, namespace):
    """Accounts and pods, with the policy in force."""
    pods = Pods(api, namespace)
    for obj in documents("policy/policy.yaml"):
        plural = {
            "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
        }[obj["kind"]]
        api.apply(f"{POLICIES}/{plural}/{obj['metadata']['name']}", obj).accepted()
    pods.make_account("jobset-agent")
    pods.make_account("team-a-jobset-agent")
    pods.make_account("other")
    own = pods.make("own", annotations={"kept": "1"})
    pods.make("foreign")
    token = pods.token("jobset-agent", own)

    def in_force():
        return (
            pods.patch_epoch("own", "1", token=token, dryRun="All").status == 200
            and pods.patch_epoch("foreign", "1", token=token, dryRun="All").status == 403
        )

    # Roles and policies reach the API server's caches a moment after they are stored.
    patience.wait_for(in_force)
    return pods


@pytest.fixture(scope="module")
def token(pods):
    """The token of the agent in the pod "own"."""
    return pods.token("jobset-agent", pods.api("GET", f"{pods.path}/own").accepted())


def annotations(**values):
    return {"metadata": {"annotations": values}}


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
REFUSED = {
    "label": ({"metadata": {"labels": {"a": "c"}}}, "nothing but"),
    "new label": ({"metadata": {"labels": {"x": "y"}}}, "nothing but"),
    "no labels": ({"metadata": {"labels": None}}, "nothing but"),
    "finalizer": ({"metadata": {"finalizers": ["x.example/f"]}}, "nothing but"),
    "owner": ({"metadata": {"ownerReferences": [OWNER]}}, "nothing but"),
    "deadline": ({"spec": {"activeDeadlineSeconds": 10}}, "nothing but"),
    "scheduling gates": ({"spec": {"schedulingGates": None}}, "nothing but"),
    "another annotation": (annotations(other="1"), "no annotation but"),
    "another annotation as well": (annotations(**{EPOCH: "1", "kept": "2"}), "no annotation but"),
    "annotation removed": (annotations(kept=None), "no annotation but"),
    "all annotations removed": ({"metadata": {"annotations": None}}, "no annotation but"),
    **{
        f"epoch {value!r}": (annotations(**{EPOCH: value}), "must be an int32")
        for value in ("", "-1", "one", "1.0", "01", " 1", "2147483648", "99999999999999999999")
    },
    **{
        f"progress {value!r}": (annotations(**{PROGRESS: value}), "must be a step")
        for value in ("", "-1", "1 MB", "9" * 20)
    },
    **{
        f"state {value[:30]!r}": (
            annotations(**{STATE: value}),
            "must be parked, ready, prepared, saving",
        )
        for value in (
            *("", "holder", "saving=", "saving=-1", "saving=123456", "ready ", "unfit", "unfit: "),
            *("unfit: a\nb", f"unfit: {'x' * 121}"),
        )
    },
    **{
        f"unheard {value[:30]!r}": (annotations(**{UNHEARD: value}), "must be an epoch")
        for value in (
            *("", "blocked", "7 silent w-0-1", "7 stalled", "7 stalled W", "7 stalled a,b,c"),
            *("0 blocked", "7 stalled a b", f"7 stalled {'x' * 81}", "7 stalled a\nb"),
        )
    },
    "log report": (annotations(**{LOG_REPORT: "a\nb"}), "must be the name of a rule"),
    "first progress": (annotations(**{FIRST: "41 soon"}), "must be a step and seconds"),
    "pace": (annotations(**{PACE: "41"}), "must be a step and steps per second"),
    **{
        f"cause {value!r}": (annotations(**{CAUSE: value}), "must be exit-code=N")
        for value in (
            *("", "exit-code=", "exit-code=-1", "anything", "no-progress=99999999"),
            *("exit-code=1 a\nb", f"exit-code=1 {'x' * 121}"),
        )
    },
}


@pytest.mark.parametrize(("patch", "text"), REFUSED.values(), ids=REFUSED)
def test_change_of_the_own_pod_is_refused(pods, token, patch, text):
    """The agent's account cannot make this change to its own pod."""
    answer = pods.patch("own", patch, token=token, dryRun="All")

    assert answer.status in {403, 422}
    assert text in answer.message


@pytest.mark.parametrize(
    ("cause", "progress"),
    [
        ("exit-code=137", "1234"),
        ("exit-code=1 ValueError: n\u00f6", "1234"),
        ("no-progress=300", "touched"),
        (None, str(2**63 - 1)),
        (None, None),
    ],
)
def test_report_of_the_worker_is_stored_with_the_epoch(pods, token, cause, progress):
    """Its end and its progress are reported in one patch."""
    report = {EPOCH: "1", CAUSE: cause, PROGRESS: progress, FIRST: progress and "41 3.250"}
    report[PACE] = progress and "41 0.250"
    answer = pods.patch("own", annotations(**report), token=token, dryRun="All")

    kept = {key: text for key, text in report.items() if text is not None}
    assert answer.accepted()["metadata"]["annotations"] == {"kept": "1", **kept}


@pytest.mark.parametrize(
    "state", ["parked", "ready", "prepared", "saving=30", "unfit: exit code 1: n\u00f6", None]
)
def test_state_is_stored_with_the_epoch(pods, token, state):
    """A pod without a seat reports if it is prepared, one with a seat if its worker saves."""
    answer = pods.patch("own", annotations(**{EPOCH: "1", STATE: state}), token=token, dryRun="All")

    kept = {} if state is None else {STATE: state}
    assert answer.accepted()["metadata"]["annotations"] == {"kept": "1", EPOCH: "1", **kept}


@pytest.mark.parametrize("text", ["7 blocked", "7 stalled w-0-1", "7 moving w-0-1,w-12-3", None])
def test_report_on_neighbours_is_stored_with_the_epoch(pods, token, text):
    """On its own pod only: every change of another pod is refused."""
    patch = annotations(**{EPOCH: "8", UNHEARD: text})
    answer = pods.patch("own", patch, token=token, dryRun="All")

    kept = {} if text is None else {UNHEARD: text}
    assert answer.accepted()["metadata"]["annotations"] == {"kept": "1", EPOCH: "8", **kept}
    pods.make(f"other-{len(text or '')}")
    assert pods.patch(f"other-{len(text or '')}", patch, token=token, dryRun="All").status == 403


def test_epoch_is_accepted_when_other_annotations_are_invalid(pods):
    """An annotation that does not change now does not prevent an agent from reporting its epoch."""
    pod = pods.make("soiled", annotations={PROGRESS: "garbage", CAUSE: "garbage"})
    answer = pods.patch_epoch("soiled", "1", token=pods.token("jobset-agent", pod), dryRun="All")

    assert answer.status == 200, answer.body


@pytest.mark.parametrize("value", ["0", "1", "7", "2147483647"])
def test_first_epoch_may_be_any_int32(pods, token, value):
    """Any int32 that is not negative is accepted."""
    answer = pods.patch_epoch("own", value, token=token, dryRun="All")

    assert answer.accepted()["metadata"]["annotations"] == {EPOCH: value, "kept": "1"}


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("5", "5", True),
        ("5", "6", True),
        ("9", "10", True),
        ("5", "4", False),
        ("10", "9", False),
        ("5", "0", False),
        ("5", None, False),
        ("5", "garbage", False),
        ("garbage", "1", True),
        ("garbage", "garbage", True),
        ("99999999999", "3", True),
        ("4000000000", "3", True),
    ],
)
def test_epochs_never_decrease(pods, old, new, allowed):
    """A valid epoch is never lowered or removed; an invalid one is replaced."""
    name = f"epoch-{old}-{new}".lower()
    pod = pods.make(name, annotations={EPOCH: old})
    answer = pods.patch_epoch(name, new, token=pods.token("jobset-agent", pod), dryRun="All")

    assert answer.status == (200 if allowed else 422), answer.body


def test_server_side_apply_is_covered(pods, token):
    """The rules apply to every kind of patch."""
    body = {"apiVersion": "v1", "kind": "Pod", **annotations(**{EPOCH: "1"})}
    query = {"fieldManager": "agent", "dryRun": "All"}
    kind = {"content_type": "application/apply-patch+yaml", "token": token}

    assert pods.api("PATCH", f"{pods.path}/own", body, **kind, **query).status == 200
    assert pods.api("PATCH", f"{pods.path}/foreign", body, **kind, **query).status == 403


@pytest.mark.parametrize("bound_to", [None, "foreign"])
def test_token_is_refused_when_it_is_not_bound_to_the_pod(pods, bound_to):
    """A token that is bound to no pod, or to another one."""
    pod = bound_to and pods.api("GET", f"{pods.path}/{bound_to}").accepted()
    answer = pods.patch_epoch("own", "1", token=pods.token("jobset-agent", pod), dryRun="All")

    assert answer.status == 403
    assert "no pod but its own" in answer.message


def test_token_is_refused_for_a_pod_that_replaced_its_own_one(pods):
    """A pod with the same name has another UID."""
    token = pods.token("jobset-agent", pods.make("reborn"))
    pods.api("DELETE", f"{pods.path}/reborn", gracePeriodSeconds="0").accepted()
    pods.make("reborn")

    assert pods.patch_epoch("reborn", "1", token=token, dryRun="All").status in {401, 403}


def test_accounts_are_covered_by_their_name(pods):
    """The suffix counts: copies of the account with such names are covered, too."""
    pod = pods.make("team-a", account="team-a-jobset-agent")
    covered = pods.token("team-a-jobset-agent", pod)
    other = pods.token("other")

    assert pods.patch_epoch("team-a", "1", token=covered, dryRun="All").status == 200
    assert pods.patch_epoch("foreign", "1", token=covered, dryRun="All").status == 403
    assert pods.patch_epoch("foreign", "1", token=other, dryRun="All").status == 200


def test_administrators_are_not_restricted(pods):
    """They may set any epoch."""
    assert pods.patch_epoch("own", "-5", dryRun="All").status == 200


def test_account_has_no_other_rights(pods, token):
    """The role allows watching JobSets and patching pods, and nothing else."""
    jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{pods.namespace}/jobsets"
    query = {"fieldSelector": "metadata.name=j"}

    assert pods.api("GET", jobsets, token=token, **query).status == 200
    assert pods.api("GET", f"{pods.path}/own", token=token).status == 403
    assert pods.api("GET", pods.path, token=token).status == 403
    assert pods.api("DELETE", f"{pods.path}/own", token=token, dryRun="All").status == 403
    status = pods.patch("own/status", {"status": {"phase": "Failed"}}, token=token, dryRun="All")
    assert status.status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{}/pods/own/ephemeralcontainers",
        "/api/v1/namespaces/{}/pods/own/resize",
        "/api/v1/namespaces/{}/pods/own/status",
        "/apis/batch/v1/namespaces/{}/jobs/j",
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/j",
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/j/status",
    ],
)
def test_other_resources_cannot_be_patched(pods, token, path):
    """Neither the epochs of the JobSet nor the pod by one of its subresources."""
    answer = pods.api(
        "PATCH",
        path.format(pods.namespace),
        {"status": {"syncedEpoch": 9}},
        content_type="application/merge-patch+json",
        token=token,
        dryRun="All",
    )

    assert answer.status == 403
    assert "cannot patch resource" in answer.message


def test_token_is_refused_in_another_namespace(pods, token):
    """Roles belong to one namespace, and so do agents."""
    api = pods.api
    other = api("GET", "/api/v1/namespaces/default/pods", token=token)
    jobsets = api("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", token=token)

    assert (other.status, jobsets.status) == (403, 403)


def test_requests_of_agents_have_a_flow_of_their_own(pods, token):
    """With config/agent/flow the API server assigns them to their own priority level."""
    flows = "/apis/flowcontrol.apiserver.k8s.io/v1"
    level, schema = documents("flow/flow.yaml")
    paths = [
        f"{flows}/prioritylevelconfigurations/{level['metadata']['name']}",
        f"{flows}/flowschemas/{schema['metadata']['name']}",
    ]
    pods.api.apply(paths[0], level).accepted()
    uid = pods.api.apply(paths[1], schema).accepted()["metadata"]["uid"]
    jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{pods.namespace}/jobsets"

    def flow():
        return pods.api("GET", jobsets, token=token).headers["X-Kubernetes-PF-FlowSchema-UID"]

    try:
        patience.wait_for(lambda: flow() == uid)
    finally:
        for path in reversed(paths):
            pods.api("DELETE", path)


def test_role_may_name_one_jobset(pods):
    """With resourceNames only a watch by field selector on that name is allowed."""
    name = "one-jobset-agent"
    pods.make_account(name)
    (role, *_) = documents("account/role.yaml")
    role["metadata"]["name"] = name
    role["rules"][0]["resourceNames"] = ["mine"]
    pods.api.apply(KINDS["Role"].format(pods.namespace, name), role).accepted()
    token = pods.token(name, pods.make("one", account=name))
    jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{pods.namespace}/jobsets"

    def status(selector, **query):
        return pods.api("GET", jobsets, token=token, fieldSelector=selector, **query).status

    patience.wait_for(
        lambda: (status("metadata.name=mine"), status("metadata.name=other")) == (200, 403)
    )
    assert status("metadata.name=mine", watch="1", timeoutSeconds="1") == 200
    assert status("metadata.name=other", watch="1", timeoutSeconds="1") == 403
