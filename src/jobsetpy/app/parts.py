"""From the configuration to what the parts of a manager are given, one function for each part.

Apart from the code that starts them, so that a test can tell of each field that it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobsetpy.admission import EndpointCertificate
    from jobsetpy.app.configuration import Configuration
    from jobsetpy.manager import LeaderElectionSettings, ManagerSettings


def client_limits(configuration: Configuration) -> dict[str, Any]:
    """Keyword arguments of ``client.connect``."""
    limits = configuration.client_connection
    return {"qps": limits.qps, "burst": limits.burst}


def manager_settings(
    configuration: Configuration,
    *,
    election: LeaderElectionSettings | None,
    metrics_tls: EndpointCertificate | None,
) -> ManagerSettings:
    """Where it serves what, and whether it stands for election."""
    from jobsetpy.manager import ManagerSettings

    health = configuration.health
    return ManagerSettings(
        metrics_bind_address=configuration.metrics.bind_address,
        health_probe_bind_address=health.health_probe_bind_address,
        liveness_path=health.liveness_endpoint_name,
        readiness_path=health.readiness_endpoint_name,
        metrics_tls=metrics_tls,
        leader_election=election,
    )


def controller_arguments(configuration: Configuration) -> dict[str, Any]:
    """Keyword arguments of ``wiring.add_jobset_controllers``, the backend left out."""
    return {
        "features": configuration.features,
        "group_rbac": configuration.group_scheduling.manage_rbac,
        "stalled_after_s": configuration.in_place_restart.stalled_after,
    }
