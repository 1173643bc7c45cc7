"""The coscheduler's flags over the configuration file, and what becomes of both."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from jobsetpy.app import main, process, wiring
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import COSCHEDULER
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.coscheduler import CoschedulerSettings
from jobsetpy.coscheduler.gang_scheduler.state import Limits
from support import patience

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def options(tmp_path):
    """Parses flags, with a configuration file if there is a text for one."""

    def parse(*flags, text=None):
        if text is not None:
            path = tmp_path / "configuration.yaml"
            path.write_text(HEAD + text)
            flags = ("--config", str(path), *flags)
        return main._parser().parse_args(["coscheduler", *flags])

    return parse


def made(parsed):
    """Settings of parsed flags."""
    return wiring.coscheduler_settings(f.read(parsed, COSCHEDULER))


def test_defaults_are_those_of_the_package(options):
    """Nobody else states them."""
    assert attrs.evolve(made(options()), namespace="x") == CoschedulerSettings(namespace="x")


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(options):
    """Whatever type the value has."""
    text = "coscheduler: {permitTimeout: 20s, clientNames: [a], deletePartial: true}"
    settings = made(options(text=text))
    expected = Limits(permit_s=20, delete_partial=True)
    assert (settings.limits, settings.client_names) == (expected, ("a",))
    flags = ("--permit-timeout=1m", "--client-name=b", "--client-name=c")
    settings = made(options(*flags, text=text))
    assert settings.limits == Limits(permit_s=60, delete_partial=True)
    assert settings.client_names == ("b", "c")


def test_files_of_others_take_the_place_of_its_own_certificates(options):
    """Clients are those of the folder's authority."""
    assert made(options("--cert-dir=/certs")).certificate_dir == Path("/certs")
    assert made(options("--insecure-plain-http")).plain_http


def test_it_never_contends_for_the_managers_lease(options):
    """Unless the file says so."""

    def name(**text):
        return f.read(options(**text), COSCHEDULER)["leaderElection.resourceName"]

    assert name() == "coscheduler.jobset.x-k8s.io"
    assert name(text="leaderElection: {resourceName: mine}") == "mine"


def test_it_may_ask_more_of_the_api_server_than_the_manager(options):
    """Two writes for each pod; the file and flags win."""

    def limits(*given, **text):
        made = f.read(options(*given, **text), COSCHEDULER)
        return made["clientConnection.qps"], made["clientConnection.burst"]

    assert limits() == (2000, 4000)
    assert limits(text="clientConnection: {qps: 7}") == (7, 4000)
    assert limits("--kube-api-burst=9", text="clientConnection: {qps: 0}") == (0, 9)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("coscheduler: {bindAddress: '9443'}", "coscheduler.bindAddress: Invalid value: expected host:port or :port"),
        ("coscheduler: {pathPrefix: ext}", 'field "coscheduler.pathPrefix" was removed: remove it from the file, its value is fixed now'),
        ("coscheduler: {clientNames: []}", "coscheduler.clientNames: Invalid value: must name clients"),
        ("coscheduler: {permitTimeout: 841s}", "coscheduler.permitTimeout: Invalid value: must be longer than 0s and at most 840s"),
        ("coscheduler: {permitTimeout: 5}", "coscheduler.permitTimeout: expected a duration such as 15s, got 5"),
        ("coscheduler: {certdir: x}", 'unknown field "coscheduler.certdir"'),
    ],
)  # fmt: skip
def test_what_cannot_be(options, text, problem):
    """Each problem is a line with the field's path."""
    with pytest.raises(ConfigurationError) as caught:
        f.read(options(text=text), COSCHEDULER)
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("flag", "code", "problem"),
    [
        (
            "--permit-timeout=15m",
            process.EXIT_CONFIGURATION,
            "coscheduler.permitTimeout: Invalid value: must be longer than 0s and at most 840s",
        ),
        (
            "--groups-in-flight=0",
            2,
            "--groups-in-flight was removed: drop it, its value is fixed now",
        ),
        ("--backlog", 2, "--backlog was removed: drop it, its value is fixed now"),
    ],
)
def test_process_ends_with_the_reason_when_a_flag_is_refused(flag, code, problem):
    """Flags are checked as the file is; those of earlier versions are refused by name."""
    command = [sys.executable, "-m", "jobsetpy.app.main", "coscheduler", flag]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patience.scaled(60), check=False
    )
    assert ended.returncode == code
    assert ended.stderr.endswith(f"{problem}\n")
