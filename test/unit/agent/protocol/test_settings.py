"""Environment and flags of the agent."""

from __future__ import annotations

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError, Settings, load

MINIMAL = {
    "NAMESPACE": "train",
    "POD_NAME": "js-workers-0-0-abcde",
    "JOBSET_NAME": "js",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}


def test_required_variables_are_enough() -> None:
    """All others have the documented default."""
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
def test_missing_variable_is_named(name: str, empty: bool) -> None:
    """An empty one is missing, too; others are not named."""
    environ = {**MINIMAL, name: ""} if empty else {k: v for k, v in MINIMAL.items() if k != name}

    with pytest.raises(ConfigurationError, match=rf"^not set in the environment: {name}$"):
        load(environ)


def test_all_missing_variables_are_named_together() -> None:
    """One start is enough to learn them."""
    with pytest.raises(ConfigurationError, match="NAMESPACE, POD_NAME, JOBSET_NAME"):
        load({})


def test_error_names_the_kubelets_variable_outside_of_a_pod() -> None:
    """Without it there is no address of an API server."""
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
def test_optional_variable_sets_its_field(
    name: str, value: str, field: str, expected: object
) -> None:
    """An empty one leaves the default."""
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
def test_invalid_values_are_refused(name: str, value: str) -> None:
    """The error names the variable."""
    with pytest.raises(ConfigurationError, match=name):
        load({**MINIMAL, name: value})
