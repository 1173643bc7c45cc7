"""Whether this manager stands for election, and for which Lease."""

from __future__ import annotations

from pathlib import Path

from jobsetpy.app.configuration import Configuration, ConfigurationError
from jobsetpy.manager import LeaderElectionSettings
from jobsetpy.observability.logging import get_logger

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def election_settings(
    configuration: Configuration, *, namespace_file: Path = NAMESPACE_FILE
) -> LeaderElectionSettings | None:
    """How leader election is to go; ``None`` for a manager that works without.

    Outside a pod there is no namespace to take the Lease from. A manager that is started there for
    a test or for a look, with nothing said of elections, works at once.

    Raises:
        ConfigurationError: what is asked for is not possible.
    """
    election = configuration.leader_election
    if not election.leader_elect:
        return None
    if election.resource_lock != "leases":
        msg = f"leaderElection.resourceLock: {election.resource_lock!r}: only leases can be used"
        raise ConfigurationError([msg])
    namespace = election.resource_namespace or _namespace_of_the_pod(namespace_file)
    if not namespace:
        if any(path.startswith("leaderElection") for path in configuration.given):
            msg = "leaderElection.resourceNamespace: to be given, since this is not a pod"
            raise ConfigurationError([msg])
        get_logger("manager").warning(
            "no leader election: this is no pod, and no namespace is given for the Lease"
        )
        return None
    try:
        return LeaderElectionSettings(
            namespace=namespace,
            name=election.resource_name,
            lease_duration_s=election.lease_duration,
            renew_deadline_s=election.renew_deadline,
            retry_period_s=election.retry_period,
        )
    except ValueError as error:
        raise ConfigurationError([f"leaderElection: {error}"]) from None


def _namespace_of_the_pod(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
