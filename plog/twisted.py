"""The client library for Twisted: clients, protocols with flow control and a service.

`Producer`, `Consumer` and `Admin` return Deferreds (plog.client.faces.twisted); factories,
protocols and `StreamService` are for streams (plog.client.faces.twisted.streams).
"""

# Imports are absolute, so this module's name does not hide the package Twisted.
from plog.client.faces.twisted import Admin, Consumer, Producer
from plog.client.faces.twisted.streams import (
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
