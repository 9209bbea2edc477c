"""The result of an operation on coordinator state: records to write, and a response.

An operation itself never changes persistent state. It returns the records of the change; the
runtime appends these records and passes each of them to `replay`. Loading the log calls `replay`
with the same records, so a restart restores the same state.

Source: Kafka 4.0 CoordinatorResult; docs/architecture.md, rule R8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from plog.wire.schema import Message
from plogd.ports import Later, MaybeLater

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record in a coordinator's log, with key and value as decoded messages.

    `value` is None in a tombstone, which deletes the state stored under the key.
    """

    key: Message
    value: Message | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T]):
    """The result of one operation.

    The client receives `response` once every record is below the high watermark or, if there are no
    records, once all earlier records are. If `response` is a Later, it is then awaited: for
    example, a JoinGroup waits for the rest of its group. `appended` completes when the records are
    durable, or fails with the reason. An operation that changes state without `replay` uses
    `appended` to commit or roll back the change.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: MaybeLater[T]
    appended: Later[None] | None = None
    replay: bool = True
