"""Client library of plog, a durable publish-subscribe log that speaks Kafka's protocol.

`Producer`, `Consumer` and `Admin` are the blocking API; plog.aio and plog.twisted are the APIs for
asyncio and Twisted. This module only re-exports names defined in other modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Type checkers do not see the names that `__getattr__` returns. They treat an import as a public
# name of this module only if it has the form `X as X`.
if TYPE_CHECKING:
    from plog import aio as aio
    from plog import twisted as twisted
    from plog.client.assignors.assignor import Assignment as Assignment
    from plog.client.assignors.assignor import Assignor as Assignor
    from plog.client.assignors.assignor import RebalanceProtocol as RebalanceProtocol
    from plog.client.assignors.assignor import Subscription as Subscription
    from plog.client.consumer.rebalance_listener import RebalanceListener as RebalanceListener
    from plog.client.errors import AuthenticationFailed as AuthenticationFailed
    from plog.client.errors import BufferExhausted as BufferExhausted
    from plog.client.errors import ClosedError as ClosedError
    from plog.client.errors import CommitFailed as CommitFailed
    from plog.client.errors import ConfigError as ConfigError
    from plog.client.errors import ConnectionFailed as ConnectionFailed
    from plog.client.errors import CorruptRecords as CorruptRecords
    from plog.client.errors import DeliveryTimedOut as DeliveryTimedOut
    from plog.client.errors import ForkedError as ForkedError
    from plog.client.errors import IllegalState as IllegalState
    from plog.client.errors import LogTruncated as LogTruncated
    from plog.client.errors import MaxPollIntervalExceeded as MaxPollIntervalExceeded
    from plog.client.errors import MissingExtra as MissingExtra
    from plog.client.errors import NoOffsetForPartition as NoOffsetForPartition
    from plog.client.errors import RecordTooLarge as RecordTooLarge
    from plog.client.errors import SerializationFailed as SerializationFailed
    from plog.client.errors import TlsFailed as TlsFailed
    from plog.client.errors import TransactionAborted as TransactionAborted
    from plog.client.errors import WokenUp as WokenUp
    from plog.client.errors import WrongThread as WrongThread
    from plog.client.faces.blocking import Admin as Admin
    from plog.client.faces.blocking import Consumer as Consumer
    from plog.client.faces.blocking import Producer as Producer
    from plog.client.faces.blocking import RecordFuture as RecordFuture
    from plog.client.group.group_metadata import GroupMetadata as GroupMetadata
    from plog.client.network.metadata import PartitionMetadata as PartitionMetadata
    from plog.client.network.metadata import TopicMetadata as TopicMetadata
    from plog.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from plog.client.producer.partitioner import HashPartitioner as HashPartitioner
    from plog.client.producer.partitioner import Partitioner as Partitioner
    from plog.client.producer.partitioner import RandomPartitioner as RandomPartitioner
    from plog.client.producer.partitioner import RoundRobinPartitioner as RoundRobinPartitioner
    from plog.client.values import ConsumerRecord as ConsumerRecord
    from plog.client.values import OffsetAndMetadata as OffsetAndMetadata
    from plog.client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from plog.client.values import ProducerRecord as ProducerRecord
    from plog.client.values import RecordMetadata as RecordMetadata
    from plog.errors import ErrorCode as ErrorCode
    from plog.errors import KafkaError as KafkaError
    from plog.errors import PlogError as PlogError
    from plog.errors import ProducerFenced as ProducerFenced
    from plog.errors import TransactionAbortable as TransactionAbortable
    from plog.records.codec import Record as Record
    from plog.types import TopicPartition as TopicPartition
    from plog.version import VERSION as __version__  # noqa: F401

# Names are imported on first use, so that `import plog` is cheap and does not import a reactor.
_MODULE_OF = {
    "Admin": "plog.client.faces.blocking",
    "Consumer": "plog.client.faces.blocking",
    "Producer": "plog.client.faces.blocking",
    "RecordFuture": "plog.client.faces.blocking",
    "RebalanceListener": "plog.client.consumer.rebalance_listener",
    "Assignment": "plog.client.assignors.assignor",
    "Assignor": "plog.client.assignors.assignor",
    "RebalanceProtocol": "plog.client.assignors.assignor",
    "Subscription": "plog.client.assignors.assignor",
    "PartitionMetadata": "plog.client.network.metadata",
    "TopicMetadata": "plog.client.network.metadata",
    "HashPartitioner": "plog.client.producer.partitioner",
    "Partitioner": "plog.client.producer.partitioner",
    "RandomPartitioner": "plog.client.producer.partitioner",
    "RoundRobinPartitioner": "plog.client.producer.partitioner",
    "ProducerInterceptor": "plog.client.producer.interceptors",
    "ConsumerRecord": "plog.client.values",
    "OffsetAndMetadata": "plog.client.values",
    "OffsetAndTimestamp": "plog.client.values",
    "ProducerRecord": "plog.client.values",
    "RecordMetadata": "plog.client.values",
    "ErrorCode": "plog.errors",
    "KafkaError": "plog.errors",
    "PlogError": "plog.errors",
    "ProducerFenced": "plog.errors",
    "TransactionAbortable": "plog.errors",
    "Record": "plog.records.codec",
    "TopicPartition": "plog.types",
    "AuthenticationFailed": "plog.client.errors",
    "BufferExhausted": "plog.client.errors",
    "ClosedError": "plog.client.errors",
    "CommitFailed": "plog.client.errors",
    "ConfigError": "plog.client.errors",
    "ConnectionFailed": "plog.client.errors",
    "CorruptRecords": "plog.client.errors",
    "DeliveryTimedOut": "plog.client.errors",
    "ForkedError": "plog.client.errors",
    "IllegalState": "plog.client.errors",
    "LogTruncated": "plog.client.errors",
    "MaxPollIntervalExceeded": "plog.client.errors",
    "MissingExtra": "plog.client.errors",
    "NoOffsetForPartition": "plog.client.errors",
    "RecordTooLarge": "plog.client.errors",
    "SerializationFailed": "plog.client.errors",
    "GroupMetadata": "plog.client.group.group_metadata",
    "TransactionAborted": "plog.client.errors",
    "TlsFailed": "plog.client.errors",
    "WokenUp": "plog.client.errors",
    "WrongThread": "plog.client.errors",
}

_FACES = ("aio", "twisted")

__all__ = sorted(_MODULE_OF)  # Derived, so that each name is listed only once.


def __getattr__(name: str) -> object:
    # At module level, this import would make `plog.import_module` a name of the package.
    from importlib import import_module

    # Importing a submodule also stores it as an attribute of this package.
    if name in _FACES:
        return import_module(f"{__name__}.{name}")
    # This name is not in `_MODULE_OF`: it differs in its module, and `from plog import *` must not
    # define it in the importing module.
    if name == "__version__":
        return import_module("plog.version").VERSION
    module = _MODULE_OF.get(name)
    if module is None:
        # Only for an AttributeError does hasattr() return false and `from plog import` raise an
        # ImportError.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Cached, so that the next use of the name does not call this function.
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    # By default, dir() would list only the names that have already been used, and an interactive
    # shell would not complete the others.
    return [*__all__, *_FACES, "__version__"]
