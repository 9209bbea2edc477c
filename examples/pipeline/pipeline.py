"""`run_pipeline`: the steps of the pipeline, and the checks of their results."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from examples.pipeline.audits import Audit, finding_text, records_by_minute, run_audit
from examples.pipeline.checks import Check
from examples.pipeline.planted_faults import lose, repeat
from examples.pipeline.producers import Producers
from examples.pipeline.spark_jobs import (
    TOP_PAGES,
    JobProcess,
    TopPages,
    complete_minutes,
    pipeline_jobs,
    stored_clicks,
    top_pages,
)
from examples.pipeline.traffic import (
    CLICKS,
    IN_EVERY_LINE,
    LINES,
    MINUTE_MS,
    Message,
    traffic,
)
from plog import Admin
from plog.search.index_search import search_index
from plogd.testing.broker_process import BrokerProcess

_HOUR_MS: Final = 60 * MINUTE_MS
_AUDIT_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """The size of the pipeline, and its folder, which is replaced."""

    clicks: int
    lines: int
    minutes: int
    seed: int
    timeout_s: float
    folder: Path
    now_ms: int

    @property
    def start_ms(self) -> int:
        """The time of the first records: their windows are long over, and not yet expired."""
        end_ms = self.now_ms - self.now_ms % _HOUR_MS - _HOUR_MS
        return end_ms - self.minutes * MINUTE_MS


@dataclass(kw_only=True)
class Outcome:
    """What has happened, for the page."""

    sent: dict[str, Counter[int]]
    """By topic and minute, the number of records that were sent."""
    restart_ms: int = 0
    """The time of the records during which the broker was restarted."""
    planted_ms: int = 0
    """The minute in which a record was lost and another one repeated."""
    found: dict[str, Counter[int]] = field(default_factory=dict)
    top: Sequence[TopPages] = ()
    audits: list[Audit] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Return whether all checks were made and are true."""
        return bool(self.checks) and all(check.is_ok for check in self.checks)


def run_pipeline(
    options: PipelineOptions,
    *,
    report: Callable[[str], None] = lambda line: print(line, flush=True),
) -> Outcome:
    """Run all steps. Raises JobFailed if a job does not work."""
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    messages = list(
        traffic(
            clicks=options.clicks,
            lines=options.lines,
            start_ms=options.start_ms,
            minutes=options.minutes,
            seed=options.seed,
        )
    )
    outcome = Outcome(sent=_by_minute(messages))
    with ExitStack() as cleanup:
        broker = BrokerProcess(options.folder / "broker", controls=True)
        broker.start()
        cleanup.callback(broker.close)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for topic, partitions in ((CLICKS, 3), (LINES, 2), (TOP_PAGES, 1)):
                admin.create_topic(topic, partitions=partitions)
        _send_and_process(broker, messages, options, outcome, report)
        report("auditing with Spark")
        _audit_all(broker, options, outcome)
        report("losing one record and repeating another one")
        _plant(broker, messages, outcome)
        outcome.found = records_by_minute(broker.bootstrap_servers)
    return outcome


def _by_minute(messages: Sequence[Message]) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = {CLICKS: Counter(), LINES: Counter()}
    for message in messages:
        found[message.topic][message.at_ms - message.at_ms % MINUTE_MS] += 1
    return found


def _send_and_process(
    broker: BrokerProcess,
    messages: Sequence[Message],
    options: PipelineOptions,
    outcome: Outcome,
    report: Callable[[str], None],
) -> None:
    """Send the messages, with a restart of the broker, while jobs read them."""
    half, quarter = len(messages) // 2, len(messages) // 4
    jobs = pipeline_jobs(options.folder)
    with ExitStack() as cleanup:
        with Producers(broker.bootstrap_servers) as producers:
            report(f"sending the first {half:,} records")
            producers.send(messages[:half])
            producers.flush()
            streams = {}
            for job in jobs:
                if job.is_stream:
                    report(f"starting {job.name}")
                    process = JobProcess(job, broker.bootstrap_servers, options.folder)
                    cleanup.callback(process.stop)
                    streams[job.name] = process
            streams["warehouse"].wait_until(
                lambda: stored_clicks(options.folder)[0] > 0, options.timeout_s
            )
            report("sending the rest; killing and restarting the broker")
            producers.send(messages[half : half + quarter])
            outcome.restart_ms = messages[half + quarter].at_ms
            broker.kill()
            broker.restart()
            producers.send(messages[half + quarter :])
        report("waiting for the jobs")
        _await_streams(broker, streams, messages, options, outcome)
    for job in jobs:
        if not job.is_stream:
            report(f"running {job.name}")
            JobProcess(job, broker.bootstrap_servers, options.folder).wait(options.timeout_s)
    _check_index(options, outcome)


def _check_index(options: PipelineOptions, outcome: Outcome) -> None:
    """Check that a search finds each log line once."""
    limit = 2 * options.lines
    found = search_index(options.folder / "index", IN_EVERY_LINE, limit=limit)
    distinct = {(match.partition, match.offset) for match in found}
    outcome.checks += [
        Check(name="log lines in the index", expected=options.lines, found=len(found)),
        Check(name="distinct log lines in the index", expected=options.lines, found=len(distinct)),
    ]


def _await_streams(
    broker: BrokerProcess,
    streams: dict[str, JobProcess],
    messages: Sequence[Message],
    options: PipelineOptions,
    outcome: Outcome,
) -> None:
    """Wait until the jobs have read all records, and check their results."""
    clicks_ms = [message.at_ms for message in messages if message.topic == CLICKS]
    streams["warehouse"].wait_until(
        lambda: stored_clicks(options.folder)[1] >= len(clicks_ms), options.timeout_s
    )
    expected = complete_minutes(clicks_ms)
    streams["realtime"].wait_until(
        lambda: len(top_pages(broker.bootstrap_servers)) >= len(expected), options.timeout_s
    )
    for stream in streams.values():
        stream.stop()
    rows, distinct = stored_clicks(options.folder)
    outcome.top = top_pages(broker.bootstrap_servers)
    counted = {one.start_ms: one.total for one in outcome.top}
    outcome.checks += [
        Check(name="clicks in the warehouse", expected=len(clicks_ms), found=rows),
        Check(name="distinct clicks in the warehouse", expected=len(clicks_ms), found=distinct),
        Check(
            name="clicks in the complete minutes of realtime",
            expected=sum(expected.values()),
            found=sum(counted.values()),
        ),
        Check(
            name="complete minutes with another number of clicks",
            expected=0,
            found=sum(counted.get(start, 0) != number for start, number in expected.items()),
        ),
    ]


def _audit_all(broker: BrokerProcess, options: PipelineOptions, outcome: Outcome) -> None:
    """Check that an audit accounts for every record."""
    audit = run_audit(["spark", "audit"], broker.bootstrap_servers, _AUDIT_TIMEOUT_S)
    outcome.audits.append(audit)
    for topic, number in ((CLICKS, options.clicks), (LINES, options.lines)):
        outcome.checks.append(
            Check(
                name=f"records of {topic} that the audit has found",
                expected=f"reported {number:,}, found {number:,}",
                found=audit.accounted.get(topic),
            )
        )
    outcome.checks.append(Check(name="exit code of the audit", expected=0, found=audit.exit_code))


def _plant(broker: BrokerProcess, messages: Sequence[Message], outcome: Outcome) -> None:
    """Lose a record and repeat another one of the same minute, and check that both are found."""
    lost = next(
        replace(one, value=b'{"page": "/lost"}')
        for one in messages[len(messages) // 3 :]
        if one.topic == CLICKS
    )
    outcome.planted_ms = lost.at_ms - lost.at_ms % MINUTE_MS
    lose(broker, lost)
    repeat(broker, replace(lost, value=b'{"page": "/repeated"}'))
    audit = run_audit(["audit"], broker.bootstrap_servers, _AUDIT_TIMEOUT_S)
    outcome.audits.append(audit)
    outcome.checks += [
        Check(
            name="finding after a loss and a repetition in the same minute",
            expected=[finding_text("different", CLICKS, outcome.planted_ms, lost.producer)],
            found=audit.findings,
        ),
        Check(name="exit code of the audit after that", expected=1, found=audit.exit_code),
    ]
