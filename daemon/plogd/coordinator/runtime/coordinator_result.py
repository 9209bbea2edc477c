"""What an operation on a coordinator's state gives: records to write, and an answer.

State that must survive is never changed by an operation itself. It returns the records of the
change; the runtime appends them and hands each to `replay`, which is also what loading the log
does, so that a coordinator is after a restart what it was before.

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
    """A record of a coordinator's log: the key's and the value's messages, typed.

    `value` is None to forget what the key told (a tombstone).
    """

    key: Message
    value: Message | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T]):
    """The outcome of one operation.

    `response` is told when every record is below the high watermark, and with no records once all
    that was written before is. One that is a Later waits on: a JoinGroup until its group is whole.
    `appended` gets its value when the records are durable, or fails with why they are not; an
    operation whose state is not in its records (`replay` is False) goes on, or goes back, then.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: MaybeLater[T]
    appended: Later[None] | None = None
    replay: bool = True
