"""Active segments of idle logs, which are closed while too many segments are being written."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError
from plog.settings import LONG_MAX
from plogd.log.log import Log
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG, LogSite, batch_offsets, values

LOGS = 100
UNLIMITED = 1 << 31
UNSYNCED = replace(CONFIG, flush_messages=LONG_MAX)


def _site(limit: int, config: TopicConfig = CONFIG, *, max_open: int = 0) -> LogSite:
    """Return the life after a restart with few descriptors."""
    site = LogSite().start()
    for number in range(LOGS):
        site.create(f"t-{number}", config)
    site.stop()
    site = site.next_life()
    site.files.descriptors.set_limit(limit, UNLIMITED, max_open)
    return site.start()


def _logs(site: LogSite) -> list[Log]:
    return [site.log(f"t-{number}") for number in range(LOGS)]


def _written(site: LogSite) -> list[int]:
    return [
        number for number, log in enumerate(_logs(site)) if log.segments.active.is_being_written
    ]


def _open(site: LogSite) -> int:
    return site.files.descriptors.writing + site.files.descriptors.open_on_demand()


@pytest.mark.parametrize("config", [CONFIG, UNSYNCED])
def test_more_logs_than_descriptors_are_written_and_read(config: TopicConfig) -> None:
    site = _site(80, config)
    for _ in range(7):
        for log in _logs(site):
            site.fill(log, 1)
            site.ports.advance(20)
            assert _open(site) <= 40 + site.files.descriptors._spare
    assert [batch_offsets(log) for log in _logs(site)] == [list(range(7))] * LOGS
    assert all(len(log.segments) > 1 for log in _logs(site))
    assert site.reports == [line for line in site.reports if "rolled segment" in line]
    assert (site.bugs, site.offline) == ([], [])


def test_setting_bounds_open_segments() -> None:
    site = _site(10_000, max_open=20)
    for _ in range(3):
        for log in _logs(site):
            site.fill(log, 1)
            site.settle()
            assert _open(site) <= 20
    assert [batch_offsets(log) for log in _logs(site)] == [[0, 1, 2]] * LOGS


def test_recently_used_segments_stay_open() -> None:
    site = _site(10_000, max_open=20)
    logs = _logs(site)
    for log in logs[20:]:
        for used in logs[:3]:
            site.fill(used, 1)
        site.fill(log, 1)
        site.settle()
    assert _written(site)[:3] == [0, 1, 2]
    # Each roll begins a new segment, which is not counted as closed and opened again.
    assert _written(site)[-1] == LOGS - 1
    assert len(_written(site)) <= 20


def test_segment_stays_open_until_it_is_durable() -> None:
    site = _site(10_000, max_open=20)
    logs = _logs(site)
    for log in logs[:30]:
        site.fill(log, 1)
    assert _written(site) == list(range(30))  # No sync has ended in this turn.
    site.settle()
    site.ports.advance(200)
    assert len(_written(site)) <= 20
    assert all(log.durable_end_offset == 1 for log in logs[:30])


def test_records_without_a_due_sync_are_synced_to_close_their_segments() -> None:
    site = _site(10_000, UNSYNCED, max_open=20)
    logs = _logs(site)[:30]
    for log in logs[:13]:
        site.fill(log, 1)
        site.settle()
    assert all(log.durable_end_offset == 0 for log in logs[:13])
    for log in logs[13:]:  # More than three quarters of the limit.
        site.fill(log, 1)
    site.settle()
    site.ports.advance(500)
    assert len(_written(site)) <= 20
    assert logs[0].durable_end_offset == 1


def test_appends_of_one_turn_are_refused_without_descriptors_and_succeed_later() -> None:
    site = _site(80)
    refused: list[Log] = []
    for log in _logs(site):
        try:
            site.fill(log, 1)
        except KafkaStorageError:
            refused.append(log)
    assert 0 < len(refused) < LOGS
    assert site.offline == []
    for log in refused:
        site.ports.advance(200)
        site.fill(log, 1)
    site.settle()
    assert [batch_offsets(log) for log in _logs(site)] == [[0]] * LOGS


def test_segments_are_closed_while_the_disk_is_slow() -> None:
    """Then, a job makes each write, but no job uses the segment of an idle log."""
    site = _site(10_000, max_open=20)
    logs = _logs(site)
    site.slow_down(logs[0])
    for log in logs[1:60]:
        site.append(log)
        site.settle()
        assert site.manager.dirs.writes_of(log.log_dir).is_slow
        assert _open(site) <= 21
    assert all(log.durable_end_offset == 1 for log in logs[:60])


def test_deleted_log_is_forgotten() -> None:
    site = _site(10_000, max_open=20)
    for log in _logs(site)[:10]:
        site.fill(log, 1)
    site.settle()
    for number in range(5):
        site.delete(f"t-{number}")
    assert len(site.manager._open_segments._logs) == 5


@pytest.mark.parametrize("seed", range(10))
def test_power_loss_after_segments_were_closed_loses_nothing(seed: int) -> None:
    site = _site(10_000, max_open=8)
    chance = random.Random(seed)
    logs = _logs(site)[:20]
    for _ in range(chance.randrange(30, 120)):
        site.fill(chance.choice(logs), 1)
        if chance.random() < 0.5:
            site.settle()
    durable = [log.high_watermark for log in logs]
    site = site.crash(seed)
    for log, end_offset in zip(_logs(site), durable, strict=False):
        assert list(values(log))[:end_offset] == list(range(end_offset))
