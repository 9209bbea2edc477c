"""The TLS of all listeners that want it: prepared from the settings, used, replaced on a reload.

Preparing reads files and may be slow, so after the start it is a job; using what was prepared is
for the reactor's thread. A listener that cannot be prepared spoils the whole, so that a reload
either takes all certificates or none. service.py is the one who calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from OpenSSL import SSL

from plogd.config import BrokerConfig, ConfigError
from plogd.net.tls_context import TlsServer, make_context
from plogd.net.tls_files import TlsFileError, read_material


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTls:
    """A context for each TLS listener, by name, and what to warn about."""

    contexts: Mapping[str, SSL.Context]
    warnings: tuple[str, ...]


class TlsServers:
    """What makes the TLS connections of each listener, by name in `by_listener`."""

    def __init__(self, prepared: PreparedTls) -> None:
        self.by_listener = {name: TlsServer(context) for name, context in prepared.contexts.items()}

    def use(self, prepared: PreparedTls) -> None:
        """Begin new connections as `prepared`; those that are open go on as they began."""
        for name, server in self.by_listener.items():
            server.use(prepared.contexts[name])


def prepare_tls(config: BrokerConfig, now_ms: int) -> PreparedTls:
    """Read and judge everything the TLS listeners need; any thread, blocks on files.

    Raises:
        ConfigError: something cannot be used; with every problem there is, one a line.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    contexts: dict[str, SSL.Context] = {}
    warnings: list[str] = []
    problems: list[str] = []
    for listener in config.tls_listeners():
        settings, name_for = config.tls_of(listener), partial(config.name_for, listener)
        try:
            material = read_material(settings, now=now, name_for=name_for)
            contexts[listener.name] = make_context(settings, material, name_for=name_for)
        except TlsFileError as error:
            problems.append(str(error))
        else:
            warnings += material.warnings
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return PreparedTls(contexts=contexts, warnings=tuple(dict.fromkeys(warnings)))
