"""What the handlers for requests of the controller share: the broker's part in the cluster.

Source: Kafka 3.9 KafkaApis; KIP-380 for the epochs.
"""

from __future__ import annotations

from plog.errors import ClusterAuthorizationFailed, StaleBrokerEpoch
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.replica.cluster.cluster_replicas import ClusterReplicas


def cluster_replicas(broker: Broker) -> ClusterReplicas:
    """Return the broker's replicas. Raises StaleBrokerEpoch before the broker is registered."""
    replicas = broker.cluster_replicas
    if replicas is None:
        raise StaleBrokerEpoch("this broker is not registered in the cluster yet")
    return replicas


def check_is_broker(context: RequestContext, broker: Broker, what: str) -> None:
    """Raise ClusterAuthorizationFailed unless the request came from a broker.

    On any other listener, a client could claim to be a replica: its fetches would count as
    acknowledgements. `what` describes the request.
    """
    name = broker.config.used_inter_broker_listener_name
    if context.connection.listener_name != name:
        raise ClusterAuthorizationFailed(
            f"{what} is a request between brokers; only listener {name} accepts it"
        )
