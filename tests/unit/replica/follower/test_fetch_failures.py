"""What a broker reports when it cannot replicate, and when it can again."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode, KafkaError, KafkaStorageError, error_from_code
from plog.types import TopicPartition
from plogd.replica.follower.fetch_failures import LASTING_MS, FetchFailures
from tests.helpers.sim.sim_ports import SimPorts


class Site:
    """The failures of a fetcher for broker 1."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.failures = FetchFailures(1, self.ports.clock, self.ports.report)

    def fail(self, error: Exception, *numbers: int) -> None:
        """Let partitions of a response fail."""
        for number in numbers:
            self.failures.failed(key(number), error)
        self.failures.flush()

    def succeed(self, *numbers: int) -> None:
        """Let partitions of a response succeed."""
        for number in numbers:
            self.failures.succeeded(key(number))
        self.failures.flush()

    @property
    def reports(self) -> list[str]:
        """The lines so far."""
        return self.ports.reports


def key(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def transient(code: int = ErrorCode.UNKNOWN_TOPIC_ID) -> KafkaError:
    return error_from_code(code, f"it returned {ErrorCode(code).name}")


FULL = KafkaStorageError("no space left on device")


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_error_of_a_leader_that_does_not_know_its_role_is_reported_only_if_it_lasts(
    site: Site, code: int
) -> None:
    site.fail(transient(code), 0)
    assert key(0) in site.failures
    site.ports.advance(LASTING_MS - 1)
    site.fail(transient(code), 0)
    assert site.reports == []
    site.ports.advance(1)
    for _ in range(3):
        site.fail(transient(code), 0)
    assert site.reports == [
        f"cannot replicate t-0 from broker 1: it returned {ErrorCode(code).name}; retrying"
    ]


def test_end_of_an_error_that_was_not_reported_is_not_reported(site: Site) -> None:
    for _ in range(3):
        site.fail(transient(), 0)
        site.succeed(0)
        site.ports.advance(LASTING_MS)
    assert site.reports == []
    assert key(0) not in site.failures


def test_other_errors_are_reported_at_once_and_so_is_their_end(site: Site) -> None:
    site.fail(FULL, 0)
    site.fail(FULL, 0)
    site.succeed(0)
    site.succeed(0)
    assert site.reports == [
        "cannot replicate t-0 from broker 1: no space left on device; retrying",
        "replicating t-0 from broker 1 again",
    ]


def test_partitions_with_the_same_error_share_a_line(site: Site) -> None:
    for number in range(20):
        site.failures.failed(key(number), KafkaStorageError(f"cannot write /d/t-{number}"))
    site.fail(KafkaError("damaged"), 20)
    first, second = site.reports
    assert first.startswith("cannot replicate 20 partitions (t-0, t-1, ")
    assert first.endswith(" more) from broker 1: cannot write /d/t-0; retrying")
    assert second == "cannot replicate t-20 from broker 1: damaged; retrying"
    site.succeed(*range(21))
    assert site.reports[2].startswith("replicating 21 partitions (t-0, t-1, ")
    assert site.reports[2].endswith(" more) from broker 1 again")


def test_partition_that_is_not_followed_any_more_is_forgotten(site: Site) -> None:
    site.fail(FULL, 0)
    site.failures.forget(key(0))
    assert key(0) not in site.failures
    site.succeed(0)
    assert len(site.reports) == 1


def test_failed_requests_and_their_end_are_reported_once(site: Site) -> None:
    site.failures.leader_answered()
    for _ in range(2):
        site.failures.leader_failed(OSError("refused"))
    assert site.failures.is_leader_failed
    for _ in range(2):
        site.failures.leader_answered()
    assert not site.failures.is_leader_failed
    assert site.reports == [
        "cannot fetch from broker 1: refused; retrying",
        "fetching from broker 1 again",
    ]
