"""A broker for the tests of an application: a thin front to `plogd.testing`, imported on use.

With pytest nothing needs to be imported at all: the fixtures are there once plog is installed
(docs/testing.md). Elsewhere::

    with plog.testing.broker(directory) as broker:
        client = connect(broker.bootstrap_servers)

`RunningBroker` is the type of the fixtures that are brokers, `BrokerFactory` that of
``plog_broker_factory``. `BrokerProcess` and `BrokerThread` are its two kinds, `Hooks` and `Hook`
what a broker has as ``hooks``. They are there for annotations.

The client library works without the broker's package; only this module needs it, when used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess as BrokerProcess
    from plogd.testing.broker_thread import BrokerThread as BrokerThread
    from plogd.testing.hooks import Hook as Hook
    from plogd.testing.hooks import Hooks as Hooks
    from plogd.testing.plugin import BrokerFactory as BrokerFactory
    from plogd.testing.running_broker import BrokerFailed as BrokerFailed
    from plogd.testing.running_broker import RunningBroker as RunningBroker

_MODULE_OF = {
    "BrokerFactory": "plogd.testing.plugin",
    "BrokerFailed": "plogd.testing.running_broker",
    "BrokerProcess": "plogd.testing.broker_process",
    "BrokerThread": "plogd.testing.broker_thread",
    "Hook": "plogd.testing.hooks",
    "Hooks": "plogd.testing.hooks",
    "RunningBroker": "plogd.testing.running_broker",
}

__all__ = [
    "BrokerFactory",
    "BrokerFailed",
    "BrokerProcess",
    "BrokerThread",
    "Hook",
    "Hooks",
    "RunningBroker",
    "broker",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def broker(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kind: Literal["thread", "process"] = "thread",
) -> RunningBroker:
    """A broker below `directory`, not started yet; ``with`` starts it and stops it.

    It runs in a thread of this process, or in a process of its own.
    """
    if kind == "process":
        from plogd.testing.broker_process import BrokerProcess

        return BrokerProcess(directory, settings, controls=True)
    from plogd.testing.broker_thread import BrokerThread

    return BrokerThread(directory, settings)
