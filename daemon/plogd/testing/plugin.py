"""pytest fixtures for a real broker; installed with plog, pytest finds them by itself.

::

    @pytest.mark.plog_topic("orders", partitions=3)
    def test_orders_are_counted(plog_broker):
        producer = Producer({"bootstrap.servers": plog_broker.bootstrap_servers})

docs/testing.md shows them all. Brokers run in a thread of the test's process unless
``--plog-broker=process`` or the ini option ``plog_broker`` says otherwise. Each test's hooks end
with it, and a broker that has reported a bug, or does not stop cleanly, is an error of the test.

pytest loads this in every run wherever plog is installed: it imports nothing of plog's or Twisted's
before a fixture is used (tests/unit/testing/test_plugin.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pytest

if TYPE_CHECKING:
    from plogd.testing.running_broker import RunningBroker

Kind: TypeAlias = Literal["process", "thread"]
KINDS = ("thread", "process")
_MARK = "plog_topic"
_MARKS = (
    f"{_MARK}(name=None, partitions=1, config=None, unique=False): create a topic for this test on "
    "its broker; without a name, or if unique, with one that nobody has used.",
    'plog_broker(kind=None, settings=None): how this test\'s `plog_broker` is: "thread" or '
    '"process", with settings of Kafka\'s names.',
)


class BrokerFactory(Protocol):
    """Start one more broker; `settings` are Kafka's names, as in server.properties."""

    def __call__(
        self, settings: dict[str, str] | None = None, *, kind: Kind | None = None
    ) -> RunningBroker:
        """Return a `RunningBroker` that serves; it ends with the test session."""
        ...


class _Brokers:
    """The brokers that outlive a test."""

    def __init__(self) -> None:
        self._brokers: list[RunningBroker] = []

    def add(self, broker: RunningBroker) -> None:
        self._brokers.append(broker)

    def discard(self, broker: RunningBroker) -> None:
        self._brokers.remove(broker)

    def end_test(self) -> None:
        """Let go of the hooks. Raises BrokerFailed for a broker with a bug, once."""
        for broker in self._brokers:
            if broker.is_running:
                broker.hooks.reset()
        for broker in self._brokers:
            broker.check()


_BROKERS = pytest.StashKey[_Brokers]()


# -- what pytest calls ---------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """How brokers run."""
    what = "how the plog_* fixtures run their brokers: thread (the default) or process"
    parser.getgroup("plog").addoption("--plog-broker", choices=KINDS, default=None, help=what)
    parser.addini("plog_broker", what, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Tell the marks, refuse a wrong option."""
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)
    if config.getini("plog_broker") not in ("", *KINDS):
        wrong = config.getini("plog_broker")
        raise pytest.UsageError(f"plog_broker = {wrong}: it is one of {', '.join(KINDS)}")
    config.stash[_BROKERS] = _Brokers()


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test with marked topics needs the fixture that makes them, before its others."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker(_MARK) is None:
        return
    if "plog_topics" not in item.fixturenames:
        item.fixturenames.insert(0, "plog_topics")


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """All fixtures are there: the first thing at the test's end is to look after its brokers."""
    if any(name.startswith("plog_") for name in getattr(item, "fixturenames", ())):
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
        raise ValueError(f"a broker is one of {', '.join(KINDS)}, not {kind!r}")
    from plogd.testing.broker_thread import BrokerThread

    return BrokerThread(folder, settings)


def check_names(settings: Mapping[str, str]) -> None:
    """Refuse names of settings that nobody knows: the broker's warning would not be read here.

    Those that Kafka knows and plog does not use are harmless. Raises ValueError.
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
    brokers.add(broker)
    yield broker
    brokers.discard(broker)
    broker.close()


@pytest.fixture(scope="session")
def plog_session_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """One broker for all tests of the session that ask for it; they keep apart by their topics."""
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
    """Brokers started on demand that live until the session ends, or until they are stopped."""
    started: list[Iterator[RunningBroker]] = []

    def start(settings: dict[str, str] | None = None, *, kind: Kind | None = None) -> RunningBroker:
        folder = tmp_path_factory.mktemp("plog-broker")
        life = _running(pytestconfig, folder, settings, kind)
        broker = next(life)
        started.append(life)
        return broker

    yield start
    errors: list[Exception] = []
    for life in started:
        try:
            next(life, None)
        except Exception as error:  # The others have to end all the same.
            errors.append(error)
    if errors:
        raise errors[0]


# -- topics --------------------------------------------------------------------------------------


@pytest.fixture
def plog_topics(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The topics of this test's marks: what they are called, by the name in the mark.

    They are made on `plog_broker` if the test has one, else on `plog_session_broker`, where those
    with a fixed name are deleted after the test.
    """
    marks = [_bound(_topic_mark, mark) for mark in request.node.iter_markers(_MARK)]
    names: dict[str, str] = {}
    if not marks:
        yield names
        return
    broker = _broker_of(request)
    fixed: list[str] = []
    for mark in reversed(marks):  # pytest has the nearest first: the uppermost is the first here.
        wanted, unique = mark["name"], mark.pop("unique")
        if wanted is None or unique:
            mark["name"] = _unique_name(wanted or request.node.name.removeprefix("test_"))
        else:
            fixed.append(wanted)
        names[wanted or mark["name"]] = broker.create_topic(**mark)
    yield names
    if broker.is_running:
        for name in fixed:
            broker.delete_topic(name)


@pytest.fixture
def plog_topic(request: pytest.FixtureRequest, plog_topics: dict[str, str]) -> str:
    """The name of this test's topic: that of its first mark, or a fresh one of one partition."""
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
    """The arguments of a mark. Fails the test, naming it, for those it does not have."""
    try:
        arguments: dict[str, Any] = form(*mark.args, **mark.kwargs)
    except TypeError as error:
        what = str(error).removeprefix(form.__name__)
        pytest.fail(f"@pytest.mark.{mark.name}{what}", pytrace=False)
    return arguments
