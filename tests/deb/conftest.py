"""Guests for the tests of the Debian packages, which packaging/test-deb has built and runs.

A test asks for `boot`, and for a layer unless Debian with systemd is enough: `dependencies` has the
packages on which plog depends, and `installed` is a host on which version 1 was installed with apt.
Tests that change only settings and data ask for `host`, which they share.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.deb.administration import restore, use_version
from tests.deb.figures import Figure
from tests.deb.guest import Guest

SUITES = os.environ.get("PLOG_DEB_SUITES", "bookworm trixie").split()
FIGURE = "figure"
_FAILED = pytest.StashKey[bool]()

Boot = Callable[..., Guest]
Record = Callable[..., None]


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a suite in one process, which then boots the guests of each layer once."""
    for item in items:
        suite = next((name for name in SUITES if name in item.name), "")
        item.add_marker(pytest.mark.xdist_group(suite))
    items.sort(key=lambda item: SUITES[-1] in item.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test has failed, for the teardown of its guests."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    # The properties of an item are in the reports of all its phases.
    calls = [report for report in reports if report.when == "call"]
    figures = sorted(
        text for each in calls for name, text in each.user_properties if name == FIGURE
    )
    if figures:
        terminalreporter.section("figures")
        for figure in figures:
            terminalreporter.write_line(figure)


@pytest.fixture(scope="session", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """The suite of Debian."""
    return str(request.param)


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder in which packaging/test-deb has put packages, repositories and trees."""
    folder = os.environ.get("PLOG_DEB_TEST")
    if folder is None:
        pytest.skip("these tests need booted guests; run packaging/test-deb")
    return Path(folder)


@pytest.fixture(scope="session")
def start_guest(
    suite: str, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Guest]:
    """Returns a function that boots a guest, which the caller must destroy, on layers."""

    def start(name: str, layers: Sequence[Path], disk: str = "4g") -> Guest:
        mounts = {
            "/srv/debian": (built / f"debian-{suite}").resolve(),
            "/srv/packages": built,
        }
        trees = layers or [(built / f"host-{suite}").resolve()]
        folder = tmp_path_factory.mktemp(f"{name}-{suite}-")
        # Two guests with the same name would share their cgroups.
        name = folder.name + os.environ.get("PYTEST_XDIST_WORKER", "")
        guest = Guest(name, trees, folder, mounts, disk=disk)
        try:
            guest.boot()
            if len(trees) == 1:  # Otherwise, the lists of apt are in one of the layers.
                _use_packages(guest, suite)
        except BaseException:
            guest.destroy()
            raise
        return guest

    return start


def _use_packages(guest: Guest, suite: str) -> None:
    """Let apt of the guest use the downloaded archive of Debian and version 1 of plog."""
    guest.path("/etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/debian ./\n")
    use_version(guest, 1, suite)


@pytest.fixture(scope="session")
def dependencies(built: Path, suite: str) -> list[Path]:
    """The tree of a host with the packages that plog depends on, but without plog."""
    return [(built / f"dependencies-{suite}").resolve()]


@pytest.fixture(scope="session")
def installed(start_guest: Callable[..., Guest], dependencies: list[Path]) -> list[Path]:
    """The layers of a host on which plog has been installed and has run."""
    guest = start_guest("installed", dependencies)
    try:
        guest.run("apt-get", "-qq", "install", "-y", "plog-broker")
        guest.power_off()
    finally:
        guest.destroy()
    return [guest.upper, *dependencies]


@pytest.fixture(autouse=True)
def _turn(built: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no other test run at the same time as one with the mark `alone`."""
    is_alone = request.node.get_closest_marker("alone") is not None
    with (built / "turn.lock").open("a") as turn, (built / "tests.lock").open("a") as tests:
        # A test that waits for the second lock keeps the first one, so that it is the next.
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(tests, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


@pytest.fixture
def boot(start_guest: Callable[..., Guest], request: pytest.FixtureRequest) -> Iterator[Boot]:
    """Returns a function that boots a guest on layers (by default none) until the test ends."""
    guests: list[Guest] = []

    def start(layers: Sequence[Path] = (), *, disk: str = "4g") -> Guest:
        guests.append(start_guest("guest", layers, disk))
        return guests[-1]

    yield start
    for guest in guests:
        if request.node.stash.get(_FAILED, False):
            _print_journal(guest)
        guest.destroy()


def _print_journal(guest: Guest) -> None:
    print(f"--- {guest.name}")
    print(guest.shell("journalctl --no-pager -n 80; systemctl --failed", check=False))


@pytest.fixture(scope="session")
def _shared(start_guest: Callable[..., Guest], installed: list[Path]) -> Iterator[list[Guest]]:
    """The guest of `host`, if it has been booted."""
    guests: list[Guest] = []
    yield guests
    for guest in guests:
        guest.destroy()


@pytest.fixture
def host(
    start_guest: Callable[..., Guest],
    installed: list[Path],
    _shared: list[Guest],
    request: pytest.FixtureRequest,
) -> Iterator[Guest]:
    """A host with plog that has just been installed, or looks as if.

    Booting one for each test would take longer than most tests. After a failure, the next test gets
    a new one.
    """
    if not _shared:
        _shared.append(start_guest("host", installed))
    [guest] = _shared
    yield guest
    if request.node.stash.get(_FAILED, False):
        _print_journal(guest)
        _shared.clear()
        guest.destroy()
    else:
        restore(guest)


@pytest.fixture
def figure(request: pytest.FixtureRequest, suite: str) -> Record:
    """Returns a function that records a figure: name, value, target if there is one, and unit."""

    def record(name: str, value: float, *, target: float | None = None, unit: str = "") -> None:
        found = Figure(suite=suite, name=name, value=value, target=target, unit=unit)
        request.node.user_properties.append((FIGURE, str(found)))

    return record
