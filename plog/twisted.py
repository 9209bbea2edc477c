"""The client library for Twisted: clients, protocols with flow control, a service.

`Producer`, `Consumer` and `Admin` return Deferreds (plog.client.twisted_face); factories, protocols
and `StreamService` are for streams (plog.client.twisted_streams).
"""

from plog.client.twisted_face import Admin, Consumer, Producer
from plog.client.twisted_streams import (
    ConsumerFactory,
    ConsumerProtocol,
    ProducerFactory,
    ProducerProtocol,
    StreamService,
)

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerFactory",
    "ConsumerProtocol",
    "Producer",
    "ProducerFactory",
    "ProducerProtocol",
    "StreamService",
]
