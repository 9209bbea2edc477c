"""pytest fixtures for a real broker, which pytest finds wherever plog is installed.

::

    @pytest.mark.plog_topic("orders", partitions=3)
    def test_orders_are_counted(plog_broker):
        producer = Producer({"bootstrap.servers": plog_broker.bootstrap_servers})

docs/testing.md describes all fixtures. Brokers run in a thread of the test's process unless
``--plog-broker=process`` or the ini option ``plog_broker`` selects a process. Hooks end with their
test. A test fails with an error if its broker has reported a bug or does not stop cleanly.

pytest loads this module in every run wherever plog is installed, so it imports neither plog nor
Twisted before a fixture is used (tests/unit/testing/test_plugin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pytest

if TYPE_CHECKING:
    from plogd.testing.running_broker import RunningBroker
    from plogd.testing.running_cluster import RunningCluster

Kind: TypeAlias = Literal["process", "thread"]
KINDS = ("thread", "process")
_MARK = "plog_topic"
_MARKS = (
    f"{_MARK}(name=None, partitions=1, config=None, unique=False): create a topic for this test on "
    "its broker; without a name, or if unique, the topic gets a unique name.",
    "plog_broker(kind=None, settings=None): configure the test's `plog_broker`: kind is "
    '"thread" or "process"; settings have the same names as in Kafka.',
)


class BrokerFactory(Protocol):
    """Starts another broker; `settings` have Kafka's names, as in server.properties."""

    def __call__(
        self, settings: dict[str, str] | None = None, *, kind: Kind | None = None
    ) -> RunningBroker:
        """Return a started broker, which is stopped at the end of the test session."""
        ...


class ClusterFactory(Protocol):
    """Starts a cluster; `settings` apply to all brokers and have Kafka's names."""

    def __call__(self, count: int = 3, settings: dict[str, str] | None = None) -> RunningCluster:
        """Return a started cluster of `count` brokers, which ends with the test."""
        ...


class _Brokers:
    """The running brokers of a test session."""

    def __init__(self) -> None:
        self._brokers: list[RunningBroker] = []

    def add(self, broker: RunningBroker) -> None:
        self._brokers.append(broker)

    def discard(self, broker: RunningBroker) -> None:
        self._brokers.remove(broker)

    def end_test(self) -> None:
        """End the hooks of all brokers. Raises BrokerFailed, once, if a broker has a bug."""
        # All hooks are reset first, because a check may raise an exception.
        for broker in self._brokers:
            if broker.is_running:
                broker.hooks.reset()
        for broker in self._brokers:
            broker.check()


# Not a global variable, because pytester runs several sessions in one process.
_BROKERS = pytest.StashKey[_Brokers]()


# -- hooks of pytest -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini setting that select how brokers run."""
    help_text = "how the plog_* fixtures run their brokers: thread or process (default: thread)"
    parser.getgroup("plog").addoption("--plog-broker", choices=KINDS, default=None, help=help_text)
    parser.addini("plog_broker", help_text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and reject an invalid ini setting."""
    for mark in _MARKS:
        # Otherwise, pytest rejects the marks with --strict-markers.
        config.addinivalue_line("markers", mark)
    if config.getini("plog_broker") not in ("", *KINDS):
        wrong = config.getini("plog_broker")
        raise pytest.UsageError(f"invalid plog_broker = {wrong}; use one of {', '.join(KINDS)}")
    config.stash[_BROKERS] = _Brokers()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the fixture that creates topics to a test with the mark, before its other fixtures."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker(_MARK) is None:
        return
    if "plog_topics" not in item.fixturenames:
        item.fixturenames.insert(0, "plog_topics")


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the brokers after the test, before its fixtures are torn down."""
    if any(name.startswith("plog_") for name in getattr(item, "fixturenames", ())):
        # Finalizers run in reverse order, and the fixtures' finalizers have been added by now.
        item.addfinalizer(item.config.stash[_BROKERS].end_test)


# -- brokers -------------------------------------------------------------------------------------


def _make(
    config: pytest.Config, folder: Path, settings: Mapping[str, str] | None, kind: str | None
) -> RunningBroker:
    check_names(settings or {})
    kind = kind or config.getoption("--plog-broker") or config.getini("plog_broker") or KINDS[0]
    if kind == "process":
        from plogd.testing.broker_process import BrokerProcess

        return BrokerProcess(folder, settings, controls=True)
    if kind != "thread":
        raise ValueError(f"unknown kind of broker {kind!r}; use one of {', '.join(KINDS)}")
    from plogd.testing.broker_thread import BrokerThread

    return BrokerThread(folder, settings)


def check_names(settings: Mapping[str, str]) -> None:
    """Raise ValueError for unknown settings, because a test would not notice the broker's warning.

    Kafka's settings that plog does not use yet are accepted.
    """
    if not settings:
        return
    from plog.settings import settings_of
    from plogd.config.broker_config import BrokerConfig, why_unused
    from plogd.config.known_settings import is_known_to_kafka
    from plogd.config.listener_overrides import overridden_row

    rows = settings_of(BrokerConfig)
    names = {*rows, *(alias for row in rows.values() for alias in row.aliases)}
    unknown = [
        name
        for name in settings
        if name not in names and overridden_row(name) is None and not is_known_to_kafka(name)
    ]
    if unknown:
        raise ValueError("; ".join(map(why_unused, unknown)))


def _running(
    config: pytest.Config,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    kind: str | None = None,
) -> Iterator[RunningBroker]:
    broker = _make(config, folder, settings, kind)
    brokers = config.stash[_BROKERS]
    broker.start()
    # Only after a successful start, whose failure already contains the end of the log.
    brokers.add(broker)
    yield broker
    # Before it is closed, so that its problems are reported only once.
    brokers.discard(broker)
    broker.close()


@pytest.fixture(scope="session")
def plog_session_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """One broker shared by the tests of the session, which use different topics."""
    yield from _running(pytestconfig, tmp_path_factory.mktemp("plog-session-broker"))


@pytest.fixture
def plog_broker(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path: Path
) -> Iterator[RunningBroker]:
    """A broker with an empty data directory for one test."""
    mark = request.node.get_closest_marker("plog_broker")
    options: dict[str, Any] = {} if mark is None else _bound(_broker_mark, mark)
    yield from _running(pytestconfig, tmp_path / "plog-broker", **options)


@pytest.fixture(scope="session")
def plog_broker_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts brokers, which run until they are stopped or the session ends."""
    started: list[Iterator[RunningBroker]] = []

    def start(settings: dict[str, str] | None = None, *, kind: Kind | None = None) -> RunningBroker:
        folder = tmp_path_factory.mktemp("plog-broker")
        life = _running(pytestconfig, folder, settings, kind)
        broker = next(life)
        started.append(life)
        return broker

    yield start
    _call_all([partial(next, life, None) for life in started])


def _call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call all functions, and raise the first error."""
    errors: list[Exception] = []
    for function in functions:
        try:
            function()
        # The other brokers must also be stopped.
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture
def plog_cluster(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[ClusterFactory]:
    """A function that starts several brokers in threads, which form a cluster."""
    clusters: list[RunningCluster] = []
    brokers = pytestconfig.stash[_BROKERS]

    def start(count: int = 3, settings: dict[str, str] | None = None) -> RunningCluster:
        check_names(settings or {})
        from plogd.testing.running_cluster import RunningCluster

        folder = tmp_path / f"plog-cluster-{len(clusters) + 1}"
        cluster = RunningCluster(folder, count, settings)
        cluster.start()
        clusters.append(cluster)
        for broker in cluster.brokers.values():
            brokers.add(broker)
        return cluster

    yield start
    for cluster in clusters:
        for broker in cluster.brokers.values():
            brokers.discard(broker)
    _call_all([cluster.close for cluster in clusters])


# -- topics --------------------------------------------------------------------------------------


@pytest.fixture
def plog_topics(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The actual names of this test's topics, by the name in the mark.

    Topics are created on `plog_broker` if the test uses it, otherwise on `plog_session_broker`,
    where topics with a fixed name are deleted after the test.
    """
    marks = [_bound(_topic_mark, mark) for mark in request.node.iter_markers(_MARK)]
    names: dict[str, str] = {}
    if not marks:
        yield names
        return
    broker = _broker_of(request)
    fixed: list[str] = []
    for mark in reversed(marks):  # pytest returns the nearest mark first.
        wanted, unique = mark["name"], mark.pop("unique")
        if wanted is None or unique:
            mark["name"] = _unique_name(wanted or request.node.name.removeprefix("test_"))
        else:
            fixed.append(wanted)
        names[wanted or mark["name"]] = broker.create_topic(**mark)
    yield names
    # The test may have stopped its broker, which keeps the topics on disk.
    if broker.is_running:
        for name in fixed:
            broker.delete_topic(name)


@pytest.fixture
def plog_topic(request: pytest.FixtureRequest, plog_topics: dict[str, str]) -> str:
    """The name of this test's topic: from its first mark, or a new topic with one partition."""
    for name in plog_topics.values():
        return name
    prefix: str = request.node.name.removeprefix("test_")
    return _broker_of(request).fresh_topic(prefix)


def _broker_of(request: pytest.FixtureRequest) -> RunningBroker:
    own = "plog_broker" in request.fixturenames
    broker: RunningBroker = request.getfixturevalue("plog_broker" if own else "plog_session_broker")
    return broker


def _unique_name(prefix: str) -> str:
    from plogd.testing.running_broker import unique_name

    return unique_name(prefix)


def _topic_mark(
    name: str | None = None,
    partitions: int = 1,
    config: Mapping[str, Any] | None = None,
    unique: bool = False,
) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "config": config, "unique": unique}


def _broker_mark(
    kind: Kind | None = None, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {"kind": kind, "settings": settings}


def _bound(form: Any, mark: pytest.Mark) -> dict[str, Any]:
    """Return the arguments of a mark; fail the test if the mark does not accept them."""
    try:
        arguments: dict[str, Any] = form(*mark.args, **mark.kwargs)
    except TypeError as error:
        problem = str(error).removeprefix(form.__name__)
        # The error is in the mark, so a traceback through this module would not help.
        pytest.fail(f"@pytest.mark.{mark.name}{problem}", pytrace=False)
    return arguments
