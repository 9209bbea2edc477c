"""`RunningBroker`: the common part of test brokers in a thread and in a process.

broker_thread.py and broker_process.py contain the two subclasses. Only one thread may start and
stop the broker; clients may connect from any thread.
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

# These limits only end a hanging test, so they are long enough for a slow machine.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ASK_TIMEOUT_S = 120.0
NOT_RUNNING = "the broker is not running; call start() or restart()"
RUNS_ALREADY = "the broker is already running; call stop() first, or call restart()"
_LOG_TAIL_CHARACTERS = 4000
# The level at which log.failure reports unexpected errors.
_BUG = re.compile(r"^\S+Z CRITICAL ", re.MULTILINE)
_NAME_CHARACTERS_MAX = 60


class BrokerFailed(Exception):
    """The broker did not start or stop cleanly, or logged a bug; the text ends with log lines."""


class RunningBroker(ABC):
    """A broker in `directory`: ``data/`` is its log.dirs, ``broker.log`` contains its output.

    `settings` have Kafka's names, as in server.properties.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` for clients; a restart keeps the port.
        addresses: ``HOST:PORT`` of every listener, in the order of ``listeners``.
        started_in_ms: duration of the last startup, until clients could connect.
        hooks: faults for the next requests, such as delays and errors.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        # The first start chooses a free port, and later starts use the same one.
        self.bootstrap_servers = "127.0.0.1:0"
        self.addresses: tuple[str, ...] = ()
        self.started_in_ms = 0.0
        self.hooks = Hooks(self._ask)
        self._settings = dict(settings or {})
        # A bug is reported once, and not after every later test of the session.
        self._checked_characters = 0
        self._moved_s = 0.0
        self._has_to_run = False
        """Whether the broker was started and has not been stopped or killed since then."""

    # -- start and stop -----------------------------------------------------------------------

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Return whether the broker is running."""

    @property
    def has_exited(self) -> bool:
        """Return whether the broker has ended although it was neither stopped nor killed."""
        return self._has_to_run and not self.is_running

    @abstractmethod
    def start(self) -> None:
        """Start the broker and wait until it is ready. Raises BrokerFailed if it fails to start."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker as SIGTERM does. Raises BrokerFailed if it does not stop cleanly."""

    @abstractmethod
    def kill(self) -> None:
        """End the broker immediately, without a flush or a clean shutdown marker."""

    @abstractmethod
    def reload(self) -> None:
        """Reload the broker's settings, and wait until the reload is done."""

    def restart(self) -> None:
        """Stop the broker cleanly if it is running, then start it with the same data and port.

        Advanced time is kept; hooks are removed.
        """
        if self.is_running:
            self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker if it is running, and check its log.

        Raises:
            BrokerFailed: the broker did not stop cleanly, has exited unexpectedly, or has logged a
                bug.
        """
        # Not `is_running`: if the broker has exited unexpectedly, `stop` reports it.
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

    # -- log ------------------------------------------------------------------------------------

    def log_text(self) -> str:
        """Return the broker's output since its first start."""
        try:
            return self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def check(self) -> None:
        """Raise BrokerFailed if the broker has logged a critical event since the last check."""
        text = self.log_text()
        news, self._checked_characters = text[self._checked_characters :], len(text)
        if _BUG.search(news):
            raise BrokerFailed(f"the broker reported a bug\n{news[-_LOG_TAIL_CHARACTERS:]}")

    # -- control --------------------------------------------------------------------------------

    def advance_time(self, seconds: float) -> None:
        """Let `seconds` pass for the broker, and wait until everything due by then has happened.

        Sessions expire, delayed responses are sent, retention deletes segments, and timestamps
        advance. Clients and their timestamps keep using real time.
        """
        self._ask("advance_time", seconds=seconds)
        self._moved_s += seconds

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name. Raises the KafkaError that a client would get."""
        texts = {key: str(value) for key, value in (config or {}).items()}
        self._ask("create_topic", name=name, partitions=partitions, config=texts)
        return name

    def fresh_topic(
        self, prefix: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with a unique name that starts with `prefix`, and return the name."""
        return self.create_topic(unique_name(prefix), partitions, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicOrPartition."""
        self._ask("delete_topic", name=name)

    @abstractmethod
    def _ask(self, command: str, *, timeout_s: float = ASK_TIMEOUT_S, **arguments: Any) -> Any:
        """Run a command of controls.py and return its result."""

    # -- for subclasses -------------------------------------------------------------------------

    def _assignments(self) -> list[str]:
        """Return the settings as arguments of ``-o``."""
        settings = {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            # Only one broker on a host can have the default port.
            "plog.http.port": "0",
            **self._settings,  # Last, because a test may override the settings above.
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
    """Return a valid and unique topic name.

    >>> unique_name("test_a[b/c]")[:-8]
    'test_a-b-c-'
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", prefix).strip("-")[:_NAME_CHARACTERS_MAX]
    return f"{plain or 'topic'}-{uuid.uuid4().hex[:8]}"
