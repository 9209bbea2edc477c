"""What the scenarios of group_scenarios.py and admin_scenarios.py ask of a client, whoever made it.

Each client's test file has an adapter with these methods. Partitions are those of the topic that
the call names, or that the member has joined with; what a client does not offer its adapter lacks,
and its file takes no scenario that needs it.
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

# Rebalances are noticed with the next heartbeat, messages with the end of a long poll.
HEARTBEAT_MS = 200
FETCH_WAIT_MS = 100
SESSION_TIMEOUT_MS = 6000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """One message as a member has read it."""

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
    """A group as it is described: `members` has the client id of each."""

    state: str
    members: tuple[str, ...]


class Refused(Exception):
    """The broker said no; the text names the error as the client does."""


class Member(Protocol):
    """A consumer in a group, reading on its own until it leaves."""

    partitions: frozenset[int]
    reads: list[Read]

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit, and wait for the answer."""

    def seek(self, partition: int, offset: int) -> None:
        """Go on from there."""

    def leave(self) -> None:
        """Leave the group, and end; a second call does nothing."""


class Client(Protocol):
    """Producer, admin client, and where members come from."""

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
        """For each partition the offset `when`: "earliest", "latest", or from a time in ms on."""

    def close(self) -> None:
        """End what is left of it."""


class PollingMember(ABC):
    """A `Member` of a client that has to be polled, by one thread only: this one's own.

    Subclasses give the four steps; `call` runs anything else between two polls.
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
        """Make the consumer and subscribe."""

    @abstractmethod
    def poll(self) -> None:
        """Wait a moment for messages; append to `reads`, keep `partitions` up to date."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run it on the member's thread; its result."""
        self._raise_failure()
        future: Future[T] = Future()
        self._calls.put((function, future))
        return future.result(TIMEOUT_S)

    def leave(self) -> None:
        """Leave the group, and end; raises what went wrong on the way."""
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the member does not end"
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
