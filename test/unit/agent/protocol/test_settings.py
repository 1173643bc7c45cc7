"""The agent's environment and flags."""

from __future__ import annotations

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError, Settings, load

MINIMAL = {
    "NAMESPACE": "train",
    "POD_NAME": "js-workers-0-0-abcde",
    "JOBSET_NAME": "js",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}


def test_the_required_variables_suffice() -> None:
    """Everything else has the documented default."""
    expected = Settings(
        namespace="train",
        pod_name="js-workers-0-0-abcde",
        jobset_name="js",
        jobset_uid="",
        exit_code=42,
        barrier_path="/barrier-is-lifted",
        barrier_port=8080,
        barrier_bind_address="",
        arrival_file="/dev/shm/jobset-agent-train-js-workers-0-0-abcde",
        service_account_dir="/var/run/secrets/kubernetes.io/serviceaccount",
        api_host="10.0.0.1",
        api_port=443,
    )

    assert expected == load(MINIMAL)


@pytest.mark.parametrize("name", ["NAMESPACE", "POD_NAME", "JOBSET_NAME"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_missing_variable_is_named(name: str, empty: bool) -> None:
    """Unset and empty are the same, and the message names what is missing and nothing else."""
    environ = {**MINIMAL, name: ""} if empty else {k: v for k, v in MINIMAL.items() if k != name}

    with pytest.raises(ConfigurationError, match=rf"^not set in the environment: {name}$"):
        load(environ)


def test_all_missing_variables_are_named_at_once() -> None:
    """One start is enough to learn what to set."""
    with pytest.raises(ConfigurationError, match="NAMESPACE, POD_NAME, JOBSET_NAME"):
        load({})


def test_outside_a_pod_it_says_so() -> None:
    """Without the kubelet's variables there is no API server to talk to."""
    environ = {k: v for k, v in MINIMAL.items() if k != "KUBERNETES_SERVICE_HOST"}

    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST"):
        load(environ)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "1", "exit_code", 1),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "255", "exit_code", 255),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "", "exit_code", 42),
        ("BARRIER_PATH", "/ready", "barrier_path", "/ready"),
        ("BARRIER_PORT", "0", "barrier_port", 0),
        ("BARRIER_BIND_ADDRESS", "127.0.0.1", "barrier_bind_address", "127.0.0.1"),
        ("JOBSET_UID", "u-1", "jobset_uid", "u-1"),
        ("SERVICE_ACCOUNT_DIR", "/var/token", "service_account_dir", "/var/token"),
        ("KUBERNETES_SERVICE_PORT", "6443", "api_port", 6443),
    ],
)
def test_optional_variables(name: str, value: str, field: str, expected: object) -> None:
    """Each optional variable lands in its field."""
    assert expected == getattr(load({**MINIMAL, name: value}), field)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "0"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "256"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "-1"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "4 2"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "9" * 5000),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "²"),
        ("BARRIER_PORT", "http"),
        ("BARRIER_PORT", "65536"),
        ("BARRIER_PORT", "0" * 9 + "65536"),
        ("BARRIER_PATH", "ready"),
        ("KUBERNETES_SERVICE_PORT", "0"),
    ],
)
def test_values_that_cannot_work_are_refused(name: str, value: str) -> None:
    """The message names the variable."""
    with pytest.raises(ConfigurationError, match=name):
        load({**MINIMAL, name: value})


def test_flags_win_over_variables() -> None:
    """A flag stands for its variable, in both spellings."""
    settings = load(
        {**MINIMAL, "BARRIER_PORT": "1"},
        ["--barrier-port", "9000", "--barrier-path=/up", "--restart-exit-code=7"],
    )

    assert (settings.barrier_port, settings.barrier_path, settings.exit_code) == (9000, "/up", 7)


def test_flags_can_stand_for_required_variables() -> None:
    """Started by hand, no environment is needed for the names."""
    settings = load(
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        ["--namespace=n", "--pod-name=p", "--jobset-name=j", "--jobset-uid=u"],
    )

    assert (
        settings.namespace,
        settings.pod_name,
        settings.jobset_name,
        settings.jobset_uid,
    ) == ("n", "p", "j", "u")


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own exit code is the one for wrong configuration."""
    with pytest.raises(SystemExit) as failure:
        load(MINIMAL, ["--barrier"])

    assert failure.value.code == 2
    assert "--barrier" in capsys.readouterr().err
