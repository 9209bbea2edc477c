"""What every broker for tests has, whether it is a thread or a process: data, log, hooks, time.

broker_thread.py and broker_process.py are the two. Not thread-safe: one caller starts and stops;
clients may connect from anywhere.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plogd.testing.hooks import Hooks

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ASK_TIMEOUT_S = 120.0
NOT_RUNNING = "the broker does not run: start() it, or restart()"
RUNS_ALREADY = "the broker runs already: stop() it before, or restart() it"
_LOG_TAIL_CHARACTERS = 4000
_BUG = re.compile(r"^\S+Z CRITICAL ", re.MULTILINE)
_NAME_CHARACTERS_MAX = 60


class BrokerFailed(Exception):
    """The broker did not start or stop cleanly, or has a bug; the text ends with its last lines."""


class RunningBroker(ABC):
    """A broker below `directory`: ``data/`` is its log.dirs, ``broker.log`` what it printed.

    `settings` have Kafka's names, as in server.properties.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` for clients; the port stays the same over a restart.
        addresses: the same for every listener, in the order of ``listeners``.
        started_in_ms: how long the last start took, until clients could connect.
        hooks: faults for the next requests, such as delays and errors.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.bootstrap_servers = "127.0.0.1:0"
        self.addresses: tuple[str, ...] = ()
        self.started_in_ms = 0.0
        self.hooks = Hooks(self._ask)
        self._settings = dict(settings or {})
        self._checked_characters = 0
        self._moved_s = 0.0
        self._has_to_run = False
        """Whether it was started, and not ended by us since."""

    # -- its life -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it is there."""

    @abstractmethod
    def start(self) -> None:
        """Start the broker and return when it serves. Raises BrokerFailed if it does not."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it as SIGTERM does and wait for that. Raises BrokerFailed if it was not clean."""

    @abstractmethod
    def kill(self) -> None:
        """End it on the spot: no flush, no clean-shutdown mark."""

    @abstractmethod
    def reload(self) -> None:
        """Let it read its settings again; returns when it has done so."""

    def restart(self) -> None:
        """Stop it cleanly if it runs, then start it on the same data and the same port.

        Its time stays as far ahead as it is; hooks are gone.
        """
        if self.is_running:
            self.stop()
        self.start()

    def close(self) -> None:
        """Stop it if it runs, and look back.

        Raises BrokerFailed if that was not clean, it has ended by itself, or it has had a bug.
        """
        if self._has_to_run:
            self.stop()
        self.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_running:
            self.stop()

    # -- what it says ---------------------------------------------------------------------------

    def log_text(self) -> str:
        """All it has printed so far, over all its starts."""
        try:
            return self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def check(self) -> None:
        """Raise BrokerFailed if it has printed anything critical since the last check: a bug."""
        text = self.log_text()
        news, self._checked_characters = text[self._checked_characters :], len(text)
        if _BUG.search(news):
            raise BrokerFailed(f"the broker reports a bug\n{news[-_LOG_TAIL_CHARACTERS:]}")

    # -- what a test may do to it ---------------------------------------------------------------

    def advance_time(self, seconds: float) -> None:
        """Let `seconds` pass for the broker, and return when all that was due has happened.

        Sessions expire, delayed answers leave, retention deletes, timestamps move. Clients and
        what they stamp stay in the time of this machine.
        """
        self._ask("advance_time", seconds=seconds)
        self._moved_s += seconds

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic; its name. Raises the KafkaError that a client would be told."""
        texts = {key: str(value) for key, value in (config or {}).items()}
        self._ask("create_topic", name=name, partitions=partitions, config=texts)
        return name

    def fresh_topic(
        self, prefix: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with a name that nobody has used; `prefix` is how it begins."""
        return self.create_topic(unique_name(prefix), partitions, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicOrPartition."""
        self._ask("delete_topic", name=name)

    @abstractmethod
    def _ask(self, command: str, *, timeout_s: float = ASK_TIMEOUT_S, **arguments: Any) -> Any:
        """The outcome of a command of controls.py."""

    # -- for both kinds -------------------------------------------------------------------------

    def _assignments(self) -> list[str]:
        """The settings as ``-o`` takes them."""
        settings = {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "plog.http.port": "0",
            **self._settings,
        }
        return [f"{name}={value}" for name, value in settings.items()]

    def _serves(self, addresses: list[str], started_in_s: float) -> None:
        self._has_to_run = True
        self.started_in_ms = started_in_s * 1000
        self.addresses = tuple(addresses)
        self.bootstrap_servers = addresses[0]

    def _log_tail(self) -> str:
        return self.log_text()[-_LOG_TAIL_CHARACTERS:]


def unique_name(prefix: str) -> str:
    """A name that a topic may have and none has.

    >>> unique_name("test_a[b/c]")[:-8]
    'test_a-b-c-'
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", prefix).strip("-")[:_NAME_CHARACTERS_MAX]
    return f"{plain or 'topic'}-{uuid.uuid4().hex[:8]}"
