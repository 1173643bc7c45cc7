"""Settings of the coscheduler from flags and the configuration file."""

import sys

import pytest

from jobsetpy.app import process, wiring
from jobsetpy.app.config.settings import COSCHEDULER
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.coscheduler.gang_scheduler.state import Limits
from support.commands import run


@pytest.fixture
def made(read):
    """Return a function that makes settings of flags and the text of a file."""
    return lambda *flags, **text: wiring.coscheduler_settings(read(COSCHEDULER, *flags, **text))


def test_a_flag_overrides_the_file_and_the_file_the_default(made):
    """This holds for values of all types."""
    text = "coscheduler: {permitTimeout: 20s, clientNames: [a]}"
    settings = made(text=text)
    expected = Limits(permit_s=20)
    assert (settings.limits, settings.client_names) == (expected, ("a",))
    settings = made("--permit-timeout=1m", "--client-name=b", "--client-name=c", text=text)
    assert settings.limits == Limits(permit_s=60)
    assert settings.client_names == ("b", "c")


def test_the_rate_limit_is_higher_than_the_managers(read):
    """It makes two writes for each pod; the file and flags override the limit."""

    def limits(*given, **text):
        made = read(COSCHEDULER, *given, **text)
        return made["clientConnection.qps"], made["clientConnection.burst"]

    assert limits() == (2000, 4000)
    assert limits(text="clientConnection: {qps: 7}") == (7, 4000)
    assert limits("--kube-api-burst=9", text="clientConnection: {qps: 0}") == (0, 9)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("coscheduler: {bindAddress: '9443'}", "coscheduler.bindAddress: Invalid value: expected host:port or :port"),
        ("coscheduler: {clientNames: []}", "coscheduler.clientNames: Invalid value: must name clients"),
        ("coscheduler: {permitTimeout: 841s}", "coscheduler.permitTimeout: Invalid value: must be longer than 0s and at most 840s"),
        ("coscheduler: {permitTimeout: 5}", "coscheduler.permitTimeout: expected a duration such as 15s, got 5"),
        ("coscheduler: {certdir: x}", 'unknown field "coscheduler.certdir"'),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(read, text, problem):
    """Each problem is a line with the field's path."""
    with pytest.raises(ConfigurationError) as caught:
        read(COSCHEDULER, text=text)
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("flag", "code", "problem"),
    [
        (
            "--permit-timeout=15m",
            process.EXIT_CONFIGURATION,
            "coscheduler.permitTimeout: Invalid value: must be longer than 0s and at most 840s",
        ),
        ("--groups-in-flight=0", 2, "unrecognized arguments: --groups-in-flight=0"),
    ],
)
def test_process_ends_with_the_reason_when_a_flag_is_refused(flag, code, problem):
    """Flags are checked as the file is."""
    ended = run(sys.executable, "-m", "jobsetpy.app.main", "coscheduler", flag)
    assert ended.returncode == code
    assert ended.stderr.endswith(f"{problem}\n")
