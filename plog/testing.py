"""A broker for application tests.

With pytest, no import is necessary: installing plog makes its fixtures available
(docs/testing.md). With other test frameworks::

    with plog.testing.broker(directory) as broker:
        client = connect(broker.bootstrap_servers)

The other names are types for annotations. `RunningBroker` is the type of the broker fixtures, with
the subclasses `BrokerProcess` and `BrokerThread`; `BrokerFactory` is the type of
``plog_broker_factory``; `Hooks` and `Hook` are the types of a broker's ``hooks``. `ClusterFactory`
is the type of ``plog_cluster``, which returns a `RunningCluster`.

`plogd.testing` is imported on first use, because the client library also works without the
broker's package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

# Type checkers do not see the names that `__getattr__` returns.
if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess as BrokerProcess
    from plogd.testing.broker_thread import BrokerThread as BrokerThread
    from plogd.testing.hooks import Hook as Hook
    from plogd.testing.hooks import Hooks as Hooks
    from plogd.testing.plugin import BrokerFactory as BrokerFactory
    from plogd.testing.plugin import ClusterFactory as ClusterFactory
    from plogd.testing.running_broker import BrokerFailed as BrokerFailed
    from plogd.testing.running_broker import RunningBroker as RunningBroker
    from plogd.testing.running_cluster import RunningCluster as RunningCluster

_MODULE_OF = {
    "BrokerFactory": "plogd.testing.plugin",
    "BrokerFailed": "plogd.testing.running_broker",
    "BrokerProcess": "plogd.testing.broker_process",
    "BrokerThread": "plogd.testing.broker_thread",
    "ClusterFactory": "plogd.testing.plugin",
    "Hook": "plogd.testing.hooks",
    "Hooks": "plogd.testing.hooks",
    "RunningBroker": "plogd.testing.running_broker",
    "RunningCluster": "plogd.testing.running_cluster",
}

__all__ = [
    "BrokerFactory",
    "BrokerFailed",
    "BrokerProcess",
    "BrokerThread",
    "ClusterFactory",
    "Hook",
    "Hooks",
    "RunningBroker",
    "RunningCluster",
    "broker",
    "cluster",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Cached, so that the next use of the name does not call this function.
    value = globals()[name] = getattr(import_module(module), name)
    return value


def broker(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kind: Literal["thread", "process"] = "thread",
) -> RunningBroker:
    """Return a broker that stores its data in `directory`; ``with`` starts and stops the broker.

    The broker runs in a thread of this process or in a separate process, depending on `kind`.
    """
    if kind == "process":
        # Imported here, because BrokerThread imports Twisted, which a test with a process does not
        # need.
        from plogd.testing.broker_process import BrokerProcess

        # With controls, a test can use hooks and advance the time, as with a thread.
        return BrokerProcess(directory, settings, controls=True)
    from plogd.testing.broker_thread import BrokerThread

    return BrokerThread(directory, settings)


def cluster(
    directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
) -> RunningCluster:
    """Return a cluster of `count` brokers in threads, with their data below `directory`.

    ``with`` starts and ends it. `settings` apply to all brokers.
    """
    from plogd.testing.running_cluster import RunningCluster

    return RunningCluster(directory, count, settings)
