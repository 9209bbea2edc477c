"""The broker under attack, one for the tests of a file, and the table at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from _pytest.terminal import TerminalReporter

from plog.records import codec_is_compiled
from tests.attack.target import RESULT, RSS_MAX_MB, Result, Target

Attack = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="module")
def target_settings() -> dict[str, str]:
    """Settings for additional ports and listeners; a file may override this fixture."""
    return {}


@pytest.fixture(scope="module")
def target_of_file(
    target_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The broker that the tests of a file attack."""
    with Target(tmp_path_factory.mktemp("attack"), target_settings) as target:
        yield target


@pytest.fixture
def target(target_of_file: Target) -> Target:
    """The broker of the file, or a new one if the previous attack failed."""
    target_of_file.replace_damaged()
    return target_of_file


@pytest.fixture
def attack(request: pytest.FixtureRequest, target: Target) -> Attack:
    """`with attack():` measures the broker while a test attacks it, and checks it afterwards."""

    def measure() -> AbstractContextManager[None]:
        return target.attack(request)

    return measure


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print a line for each attack, from one process or several."""
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
    ]
    results = [
        Result(**value)
        for report in reports
        for name, value in report.user_properties
        if name == RESULT
    ]
    if not results:
        return
    width = max(len(result.name) for result in results)
    write = terminalreporter.write_line
    terminalreporter.section("attacks")
    write(f"{'attack':<{width}}  longest wait of the probe  peak RSS  took   still works")
    for result in sorted(results, key=lambda result: result.name):
        write(_line(result, width))
    longest = max(result.probe_ms for result in results)
    produce = max(result.produce_ms for result in results)
    largest = max(result.rss_mb for result in results)
    form = "compiled" if codec_is_compiled() else "interpreted"
    write(
        f"{len(results)} attacks on the {form} hot path; longest wait {longest:.0f} ms,"
        f" of a produce {produce:.0f} ms; largest RSS {largest} MB of {RSS_MAX_MB} MB"
    )


def _line(result: Result, width: int) -> str:
    wait = f"{result.probe_ms:>9.0f} ms  {result.probe_request:<12}"
    works = "yes" if result.works else "NO"
    return (
        f"{result.name:<{width}}  {wait}   {result.rss_mb:>5} MB  {result.took_s:>4.1f} s  {works}"
    )
