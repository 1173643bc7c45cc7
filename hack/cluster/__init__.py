"""A real Kubernetes control plane, and real nodes on request, for tests and experiments.

A test gets a real API server with one line::

    from hack.cluster import Cluster

    with Cluster(controller_manager=False, scheduler=False) as cluster:
        connect(cluster.kubeconfig)

The same from a shell: ``python hack/cluster up --name dev``.
"""

from ._cluster import Cluster
from ._errors import ClusterError

__all__ = ["Cluster", "ClusterError"]
