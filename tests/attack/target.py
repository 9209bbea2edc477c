"""The broker under attack, with default settings and a probe, and the checks after each attack.

with target.attack():
    ...                        # send anything
# The broker runs, is within its bounds, and serves; otherwise an AssertionError says what fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from plog.errors import KafkaError
from plog.records import codec_is_compiled
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.running_broker import unique_name
from tests.attack.probe import Measurement, Probe
from tests.attack.service_check import check_service
from tests.fault.peers import Peer
from tests.helpers.codec_forms import process_is_compiled
from tests.helpers.hostile import memory_mb

RSS_MAX_MB = 256
"""The most memory that a broker with default settings may use during any attack."""
RESULT = "attack"
"""The name of the property in a test's report for each attack."""
_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Changes no limit: it only saves three seconds in each check of a group."""
_RESET_PEAK = "5"  # See proc(5), clear_refs.
_WRONG = re.compile(r"unexpected error|Traceback|CRITICAL", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table that `./test attack` prints."""

    name: str
    probe_ms: float
    probe_request: str
    produce_ms: float
    rss_mb: int
    took_s: float
    works: bool

    def as_property(self) -> dict[str, Any]:
        """Return the result as a property of a test's report, which processes can exchange."""
        return asdict(self)


class _LimitedBroker(BrokerProcess):
    """A broker process with a limit of open files; None for the limit of the test process."""

    def __init__(self, *arguments: Any, descriptors: int | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._descriptors = descriptors

    def _command(self) -> list[str]:
        command = super()._command()
        if self._descriptors is None:
            return command
        # The broker raises its soft limit to the hard one.
        limit = f'ulimit -n {self._descriptors} && exec "$@"'
        return ["sh", "-c", limit, "sh", *command]


class Target:
    """A running broker and its probe. Ends with `close`.

    `descriptors` is the broker's limit of open files; None for the limit of the test process.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        config_file: Path | None = None,
        descriptors: int | None = None,
    ) -> None:
        self._directory = directory
        self._settings = {**_SETTINGS, **(settings or {})}
        self._config_file = config_file
        self._descriptors = descriptors
        self._start()

    def _start(self) -> None:
        directory = self._directory / unique_name("broker")
        self.broker = _LimitedBroker(
            directory, self._settings, config_file=self._config_file, descriptors=self._descriptors
        )
        probe = Probe()  # Its process starts while the broker does.
        try:
            self.broker.start()
            assert process_is_compiled(self.broker.pid) == codec_is_compiled(), (
                "the broker does not run the same form of the hot path as the tests"
            )
            probe.connect(self.server)
        except BaseException:
            probe.close()
            raise
        self._probe = probe
        self._is_damaged = False
        self._log_checked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server(self) -> str:
        """The address of the first listener, to which clients connect."""
        return self.broker.addresses[0]

    def connect(self, *, receive_buffer: int = 0) -> Peer:
        """Return an attacker's connection."""
        return Peer(self.server, receive_buffer=receive_buffer)

    @contextmanager
    def attack(
        self, request: pytest.FixtureRequest, name: str = "", *, topic: str | None = None
    ) -> Iterator[None]:
        """Measure the broker within the block; then check that it works.

        The check creates a topic unless it gets an existing `topic` with two partitions.
        Raises AssertionError, naming the bound or the operation; see `replace_damaged`.
        """
        name = name or request.node.name.removeprefix("test_")
        _reset_peak(self.broker.pid)
        self._probe.begin()
        began = time.monotonic()
        self._is_damaged = True
        problems: list[str] = []
        try:
            yield
        except BaseException as error:  # BaseException includes the exception of pytest.fail.
            problems.append(f"the attack itself failed: {error!r}")
            raise
        finally:
            took_s = time.monotonic() - began
            measured, rss_mb = self._examine(problems, topic)
            result = Result(
                name=name,
                probe_ms=measured.longest_ms,
                probe_request=measured.longest,
                produce_ms=measured.longest_produce_ms,
                rss_mb=rss_mb,
                took_s=took_s,
                works=not problems,
            )
            request.node.user_properties.append((RESULT, result.as_property()))
        assert not problems, f"{name}: " + "; ".join(problems)
        self._is_damaged = False

    def _examine(self, problems: list[str], topic: str | None) -> tuple[Measurement, int]:
        """Add a line to `problems` for each check that fails."""
        if not self.broker.is_running:
            problems.append(f"the broker has died: {self.broker.log_text()[-500:]}")
            return Measurement(), 0
        try:
            check_service(self.server, topic)
        except (AssertionError, OSError, LookupError, KafkaError) as error:
            problems.append(f"afterwards: {error!r}")
        measured = self._probe.end()
        if measured.errors:
            problems.append(f"the probe failed: {'; '.join(measured.errors)}")
        if not measured.produced:
            problems.append("the probe was not served once")
        rss_mb = memory_mb(self.broker)
        if rss_mb > RSS_MAX_MB:
            problems.append(f"peak RSS {rss_mb} MB exceeds {RSS_MAX_MB} MB")
        text = self.broker.log_text()
        wrong = _WRONG.search(text, self._log_checked)
        if wrong:
            start = text.rfind("\n", 0, wrong.start()) + 1
            problems.append(f"the log says: {text[start : start + 500]}")
        self._log_checked = len(text)
        return measured, rss_mb

    def restart(self) -> None:
        """Stop the broker cleanly and start it on its data, with a new probe."""
        self._probe.close()
        self._probe = Probe()
        self.broker.restart()
        self._probe.connect(self.server)

    def replace_damaged(self) -> None:
        """Start a new broker if an attack on this one has failed, so that later results count."""
        if self._is_damaged:
            self._end_damaged()
            self._start()

    def _end_damaged(self) -> None:
        self._probe.close()
        if self.broker.is_running:
            self.broker.kill()

    def close(self) -> None:
        """Stop the broker, which must be clean unless an attack on it has failed."""
        if self._is_damaged:
            self._end_damaged()
            return
        self._probe.close()
        self.broker.stop()


def _reset_peak(pid: int) -> None:
    """Reset VmHWM, the peak memory of the process, to its current memory."""
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
