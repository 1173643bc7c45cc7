"""Composition of each command: Settings from the configuration, handed over whole.

Each function imports what it wires: no command needs all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from jobsetpy.app.config import tls_names
from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings, Shards
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.namespace import NAMESPACE_FILE, own_namespace
from jobsetpy.serving.tls import TlsPolicy
from jobsetpy.serving.webhook_settings import WebhookServerSettings

if TYPE_CHECKING:
    from jobsetpy.admission import WebhookSettings
    from jobsetpy.coscheduler import CoschedulerSettings
    from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
    from jobsetpy.reconcilers.execution.definition import Definition
    from jobsetpy.reconcilers.rules.backoff import RestartBackoff
    from jobsetpy.serving.certificates import CertificateManager

IN_POD_DRAIN_S: Final = 5.0
"""Time in seconds until all API servers and proxies know that a pod ends."""
METRICS_CHECK_PERIOD_S: Final = 60.0
"""Interval between checks of the certificate for metrics, in seconds."""


def manager_settings(
    configuration: Configuration, target: str = "", context: Callable[[], str] = str
) -> ManagerSettings:
    """Return the settings of a manager: its servers, shards and leader election.

    Args:
        configuration: as read.
        target: ``MODULE:FUNCTION`` of a user's program; "" for the manager's own commands.
        context: returns the namespace of the kubeconfig's context; "" if there is none.

    Raises:
        ConfigurationError: the settings cannot be used together.
    """
    election = election_settings(configuration, target, context=context)
    return configuration.make(
        ManagerSettings,
        leader_election=election,
        shards=shards(configuration, elected=election is not None),
        metrics_tls=metrics_tls(configuration),
        webhooks=configuration.make(
            WebhookServerSettings,
            namespace=own_namespace(),
            drain_s=IN_POD_DRAIN_S if NAMESPACE_FILE.exists() else 0.0,
        ),
    )


def election_settings(
    configuration: Configuration,
    target: str = "",
    *,
    namespace_file: Path = NAMESPACE_FILE,
    context: Callable[[], str] = str,
) -> LeaderElectionSettings | None:
    """Return the settings of leader election; ``None`` for a manager without it.

    Outside a pod, the Lease is in the namespace of the kubeconfig's context. A manager that is
    started there without any setting of leader election, such as for a test, runs without it.

    Args:
        configuration: as read.
        target: ``MODULE:FUNCTION`` of a user's program, after which its Lease is called if no name
            is configured: controllers of different people must not exclude each other. "" for
            commands whose Lease has a name.
        namespace_file: file with the namespace of the pod, if this is one.
        context: returns the namespace of the kubeconfig's context; "" if there is none.

    Raises:
        ConfigurationError: the settings cannot be used.
    """
    if not configuration["leaderElection.leaderElect"]:
        return None
    lock = configuration["leaderElection.resourceLock"]
    if lock != "leases":
        msg = f"leaderElection.resourceLock: {lock!r}: only leases can be used"
        raise ConfigurationError([msg])
    namespace = own_namespace(namespace_file, outside="")
    if not (namespace or configuration["leaderElection.resourceNamespace"]):
        given = {*configuration.given, *configuration.values}
        if not any(path.startswith("leaderElection") for path in given):
            get_logger("manager").warning(
                "no leader election: this is no pod, and no namespace is given for the Lease"
            )
            return None
        if not (namespace := context()):
            msg = "leaderElection.resourceNamespace: to be given, without a pod and a kubeconfig"
            raise ConfigurationError([msg])
    words = re.findall("[a-z0-9]+", target.lower())
    named = {"name": "-".join(words)} if words else {}
    try:
        return configuration.make(LeaderElectionSettings, namespace=namespace, **named)
    except ValueError as error:
        raise ConfigurationError([f"leaderElection: {error}"]) from None


def shards(configuration: Configuration, *, elected: bool) -> Shards | None:
    """Return the shards of the JobSets; ``None`` for one manager of all of them.

    Args:
        configuration: as read.
        elected: True if this manager takes part in leader election.

    Raises:
        ConfigurationError: sharding needs leader election.
    """
    count: int = configuration["shards.count"]
    if count == 1:
        return None
    if not elected:
        problem = (
            f"shards.count (--shards): {count} managers share the JobSets by Leases, so they need "
            "leaderElection.leaderElect (--leader-elect), and outside of a pod "
            "leaderElection.resourceNamespace"
        )
        raise ConfigurationError([problem])
    from jobsetpy.reconcilers.execution.shards import jobset_name_of, peek

    return Shards(count, jobset_name_of, peek)


def metrics_tls(configuration: Configuration) -> CertificateManager | None:
    """Return the certificates of the metrics server; ``None`` without TLS or without metrics.

    Raises:
        ConfigurationError: the TLS library cannot do what the ``tls`` section asks for.
    """
    if not configuration["--metrics-secure"] or configuration["metrics.bindAddress"] in {"", "0"}:
        return None
    from jobsetpy.serving.certificates import CertificateManager, FileSource, SelfSignedSource

    folder = configuration["metrics.certDir"]
    made_here = SelfSignedSource((configuration.command.metrics_service,))
    try:
        return CertificateManager(
            FileSource(Path(folder), otherwise=made_here) if folder else made_here,
            server="metrics",
            period_s=METRICS_CHECK_PERIOD_S,
            policy=_tls_policy(configuration),
        )
    except ValueError as error:
        raise ConfigurationError([f"tls: {error}"]) from None


def _tls_policy(configuration: Configuration) -> TlsPolicy:
    return TlsPolicy(
        tls13_only=configuration["tls.minVersion"] == "VersionTLS13",
        ciphers=tls_names.openssl_ciphers(configuration["tls.cipherSuites"]),
    )


def add_jobset_controllers(
    manager: Manager,
    configuration: Configuration | None = None,
    backend: BackendWatch | None = None,
    definition: Definition | None = None,
) -> None:
    """Add the JobSet controllers to ``manager``.

    Args:
        manager: not started yet.
        configuration: defaults when absent.
        backend: observed schedulers of gangs; when absent, gangs are only labelled.
        definition: observed CRD; when absent, it is taken to have all fields.
    """
    from jobsetpy.reconcilers.coscheduling import reconciler as coscheduling_reconciler
    from jobsetpy.reconcilers.execution import metrics as execution_metrics
    from jobsetpy.reconcilers.execution.owners import OWNERS
    from jobsetpy.reconcilers.jobs import reconciler as jobs_reconciler
    from jobsetpy.reconcilers.jobs import refused_pods_reconciler
    from jobsetpy.reconcilers.lost_nodes import reconciler as lost_nodes_reconciler
    from jobsetpy.reconcilers.placement import reconciler as placement_reconciler
    from jobsetpy.reconcilers.rules.backoff import RestartBackoff
    from jobsetpy.reconcilers.startup_groups import reconciler as startup_groups_reconciler

    configuration = configuration or Configuration()
    features, make = configuration.features, configuration.make
    OWNERS.configure(configuration["observability.labels"])
    manager.add_metrics(execution_metrics.REGISTRY)
    backoff = make(RestartBackoff)
    lost = make(lost_nodes_reconciler.LostNodesSettings)
    job_settings = make(
        jobs_reconciler.JobsSettings,
        features=features,
        backoff=backoff,
        backend=backend,
        lost_node_deadline_s=lost.deadline_s,
        lost=lost_nodes_reconciler.lookup(manager),
    )
    # All managers together notify the agents of the cluster.
    events_per_s = job_settings.agent_events_per_s / configuration["shards.count"]
    jobs_reconciler.setup(
        manager, attrs.evolve(job_settings, agent_events_per_s=events_per_s), definition
    )
    startup_groups_reconciler.setup(manager, features, definition)
    if features.coscheduling:
        gangs = coscheduling_reconciler.CoschedulingSettings
        coscheduling_reconciler.setup(
            manager, make(gangs, features=features, backend=backend), definition
        )
    if features.in_place_restart:
        _add_restart_in_place(manager, configuration, backoff, definition)
    lost_nodes_reconciler.setup(manager, lost)
    refused_pods_reconciler.setup(manager, definition)
    # Without the pod webhook, a misplaced pod is no accident.
    placement_reconciler.setup(manager, repair=configuration["--webhooks"])


def _add_restart_in_place(
    manager: Manager,
    configuration: Configuration,
    backoff: RestartBackoff,
    definition: Definition | None,
) -> None:
    from jobsetpy.reconcilers.restart_in_place import reconciler
    from jobsetpy.reconcilers.restart_in_place.replacing import (
        early_workers_reconciler,
        successors_reconciler,
        uncounted_reconciler,
    )

    settings = configuration.make(reconciler.RestartInPlaceSettings, backoff=backoff)
    reconciler.setup(manager, settings, definition)
    uncounted_reconciler.setup(manager)
    early_workers_reconciler.setup(manager)
    if configuration["inPlaceRestart.replacePods"]:
        successors_reconciler.setup(manager)


def webhook_settings(
    configuration: Configuration, backend: BackendWatch | None = None
) -> WebhookSettings:
    """Return the settings of the admission webhooks."""
    from jobsetpy.admission import WebhookSettings
    from jobsetpy.reconcilers.restart_in_place.injection.effective import ClusterDefaults
    from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
    from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier

    host, folder = configuration["webhook.host"], None
    if not configuration["internalCertManagement.enable"]:
        folder = Path(configuration["webhook.certDir"])
    return configuration.make(
        WebhookSettings,
        bind_address=f"{f'[{host}]' if ':' in host else host}:{configuration['webhook.port']}",
        certificate_dir=folder,
        # API servers call the pod until all of them know that it has left the Service.
        drain_s=IN_POD_DRAIN_S if NAMESPACE_FILE.exists() else 0.0,
        features=configuration.features,
        barrier=configuration.make(GroupBarrier),
        defaults=ClusterDefaults.of(configuration["inPlaceRestart.defaults"]),
        injected=configuration.make(ContainerDefaults),
        backend=backend,
        tls=_tls_policy(configuration),
    )


def coscheduler_settings(configuration: Configuration) -> CoschedulerSettings:
    """Return the settings of the coscheduler."""
    from jobsetpy.coscheduler import CoschedulerSettings
    from jobsetpy.coscheduler.gang_scheduler.state import Limits

    return configuration.make(CoschedulerSettings, limits=configuration.make(Limits))
