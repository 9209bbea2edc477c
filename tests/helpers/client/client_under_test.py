"""The interface that the scenarios require of a client, implemented by one adapter per client.

group_scenarios.py and admin_scenarios.py contain the scenarios; each client's test file contains
its adapter. Partitions are those of the topic that is passed to the call or that the member has
joined with. An adapter lacks the methods that its client does not support, and its test file omits
the scenarios that need them.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

TIMEOUT_S = 60.0

# A heartbeat reports a rebalance; the end of a long poll returns messages.
HEARTBEAT_MS = 200
FETCH_WAIT_MS = 100
SESSION_TIMEOUT_MS = 6000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """One message that a member has read."""

    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Place:
    """A committed offset."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The description of a group: `members` has the client id of each."""

    state: str
    members: tuple[str, ...]


class Refused(Exception):
    """The broker rejected the request; the text has the error's name in the client."""


class Member(Protocol):
    """A consumer in a group that reads in the background until it leaves."""

    partitions: frozenset[int]
    reads: list[Read]

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit, and wait for the response."""

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading from this position."""

    def leave(self) -> None:
        """Leave the group and stop; a second call has no effect."""


class Client(Protocol):
    """A producer, an admin client, and a factory for members."""

    def join(self, group: str, topic: str) -> Member: ...
    def produce(self, topic: str, values: Mapping[int, list[str]]) -> None: ...
    def committed(self, group: str, topic: str) -> dict[int, Place]: ...
    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def partition_count(self, topic: str) -> int: ...
    def add_partitions(self, topic: str, total: int) -> None: ...
    def settings(self, topic: str) -> dict[str, str]: ...
    def alter_settings(self, topic: str, changes: Mapping[str, str]) -> None: ...
    def groups(self) -> set[str]: ...
    def describe_group(self, group: str) -> GroupFacts: ...
    def delete_group(self, group: str) -> None: ...
    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...
    def delete_records(self, topic: str, before: Mapping[int, int]) -> None: ...

    def offsets(self, topic: str, when: str | int) -> dict[int, int]:
        """Return each partition's offset `when`: "earliest", "latest", or a time in ms."""

    def close(self) -> None:
        """Close all its members and connections."""


class PollingMember(ABC):
    """A `Member` of a client that one thread, owned by this object, must poll.

    Subclasses implement the four steps; `call` runs a function between two polls.
    """

    def __init__(self) -> None:
        self.partitions: frozenset[int] = frozenset()
        self.reads: list[Read] = []
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    @abstractmethod
    def open(self) -> None:
        """Create the consumer and subscribe."""

    @abstractmethod
    def poll(self) -> None:
        """Wait briefly for messages; append to `reads`, and update `partitions`."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def start(self) -> None:
        """Start to poll."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the member's thread; return its result."""
        self._raise_failure()
        future: Future[T] = Future()
        self._calls.put((function, future))
        return future.result(TIMEOUT_S)

    def leave(self) -> None:
        """Leave the group and stop; raises the first error that occurred."""
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the member did not stop in time"
        self._raise_failure()

    def _run(self) -> None:
        try:
            self.open()
            while not self._ended.is_set():
                self.poll()
                self._run_calls()
            self.close()
        except BaseException as error:
            self._failure = error
        self.partitions = frozenset()

    def _run_calls(self) -> None:
        while not self._calls.empty():
            function, future = self._calls.get()
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
