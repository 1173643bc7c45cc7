"""Configuration of the agent: environment variables, whose names are part of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from jobsetpy.agent.protocol.saved_epoch import SHARED_MEMORY

DEFAULT_EXIT_CODE: Final = 42
"""Not one of the codes that shells, signals (128 + n) or a crash of Python (1) give, so that a rule
that restarts the pod on it never fires by accident."""

DEFAULT_BARRIER_PATH: Final = "/barrier-is-lifted"
DEFAULT_BARRIER_PORT: Final = 8080
DEFAULT_SERVICE_ACCOUNT_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

EXIT_USAGE: Final = 2
"""Exit code of a configuration that cannot work."""

_DIGITS: Final = 18
"""Maximum number of digits of a number."""

_REQUIRED: Final = ("NAMESPACE", "POD_NAME", "JOBSET_NAME")


class ConfigurationError(Exception):
    """The environment or an argument is invalid; the message names it and the reason."""


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """JobSet of a pod, and access to the API server with the pod's own account.

    Args:
        namespace: namespace of the pod and the JobSet.
        jobset_name: name of the JobSet to follow.
        jobset_uid: its UID; "" to use that of the first one observed. The pods carry it as the
            label ``jobset.sigs.k8s.io/jobset-uid``.
        service_account_dir: folder with ``token`` and ``ca.crt``.
        api_host, api_port: address of the API server, which the kubelet sets in every container.
    """

    namespace: str
    jobset_name: str
    jobset_uid: str = ""
    service_account_dir: str = DEFAULT_SERVICE_ACCOUNT_DIR
    api_host: str = ""
    api_port: int = 443


class Settings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the agent.

    Args:
        pod_name: name of the agent's own pod.
        exit_code: exit code of the process that requests a restart in place, 1 to 255.
        barrier_path: URL path of the barrier, starting with "/".
        barrier_port: TCP port, 0 for any free one.
        barrier_bind_address: IP address; "" for all addresses of both families.
        arrival_file: path of the saved epoch, on a volume that outlives the agent's container but
            not the pod (see ``saved_epoch``).
    """

    pod_name: str
    exit_code: int = DEFAULT_EXIT_CODE
    barrier_path: str = DEFAULT_BARRIER_PATH
    barrier_port: int = DEFAULT_BARRIER_PORT
    barrier_bind_address: str = ""
    arrival_file: str = ""


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; an empty variable counts as unset.

    Raises:
        ConfigurationError: something required is missing, or a value cannot be used. The message
            lists all missing names.
    """
    given = given_in(environ, _REQUIRED)
    if "KUBERNETES_SERVICE_HOST" not in given:
        raise ConfigurationError(
            "KUBERNETES_SERVICE_HOST is not set: the agent runs in a pod, as the pod's account"
        )
    path = given.get("BARRIER_PATH", DEFAULT_BARRIER_PATH)
    if not path.startswith("/"):
        raise ConfigurationError(f"BARRIER_PATH must start with a slash: {path!r}")
    return Settings(
        **api_fields(given),
        pod_name=given["POD_NAME"],
        exit_code=number_of(given, "RESTART_POD_IN_PLACE_EXIT_CODE", DEFAULT_EXIT_CODE, 1, 255),
        barrier_path=path,
        barrier_port=number_of(given, "BARRIER_PORT", DEFAULT_BARRIER_PORT, 0, 65535),
        barrier_bind_address=given.get("BARRIER_BIND_ADDRESS", ""),
        arrival_file=given.get("ARRIVAL_FILE")
        or f"{SHARED_MEMORY}/jobset-agent-{given['NAMESPACE']}-{given['POD_NAME']}",
    )


def given_in(environ: Mapping[str, str], required: Sequence[str]) -> dict[str, str]:
    """Return the variables that are not empty.

    Raises:
        ConfigurationError: something required is missing; the message lists all missing names.
    """
    given = {name: value for name, value in environ.items() if value}
    missing = [name for name in required if name not in given]
    if missing:
        raise ConfigurationError(f"not set in the environment: {', '.join(missing)}")
    return given


def api_fields(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of :class:`ApiSettings` from variables of which none is empty.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    return {
        "namespace": given["NAMESPACE"],
        "jobset_name": given["JOBSET_NAME"],
        "jobset_uid": given.get("JOBSET_UID", ""),
        "service_account_dir": given.get("SERVICE_ACCOUNT_DIR", DEFAULT_SERVICE_ACCOUNT_DIR),
        "api_host": given.get("KUBERNETES_SERVICE_HOST", ""),
        "api_port": number_of(given, "KUBERNETES_SERVICE_PORT", 443, 1, 65535),
    }


def is_number(text: str, low: int, high: int) -> bool:
    """Return True if a text of any length is an integer within bounds."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and low <= int(text) <= high


def is_decimal(text: str) -> bool:
    """Return True if a text is a number in digits, with decimals or without."""
    whole, dot, decimals = text.partition(".")
    digits = whole + decimals
    return digits.isascii() and digits.isdecimal() and bool(whole) and (bool(decimals) or not dot)


def number_of(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return a variable as an integer within bounds; an empty variable counts as unset.

    Raises:
        ConfigurationError: the value is not such an integer.
    """
    text = environ.get(name, "")
    if not text:
        return default
    if not is_number(text, low, high):
        raise ConfigurationError(f"{name} must be an integer from {low} to {high}: {text!r}")
    return int(text)
