"""TLS contexts for all TLS listeners: created from the settings and replaced on a reload.

`prepare_tls` reads files and can be slow, so a reload runs it in a job; `TlsServers` belongs to the
reactor's thread. Called by service.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from OpenSSL import SSL

from plogd.config import BrokerConfig, ConfigError
from plogd.net.tls.tls_context import TlsServer, make_context
from plogd.net.tls.tls_files import TlsFileError, read_material


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTls:
    """A context for each TLS listener, by name, and the warnings about its files."""

    contexts: Mapping[str, SSL.Context]
    warnings: tuple[str, ...]


class TlsServers:
    """The `TlsServer` of each TLS listener; `by_listener` maps names to them."""

    def __init__(self, prepared: PreparedTls) -> None:
        self.by_listener = {name: TlsServer(context) for name, context in prepared.contexts.items()}

    def use(self, prepared: PreparedTls) -> None:
        """Use `prepared` for new connections; open connections keep their context."""
        for name, server in self.by_listener.items():
            server.use(prepared.contexts[name])


def prepare_tls(config: BrokerConfig, now_ms: int) -> PreparedTls:
    """Read and validate the files for all TLS listeners; blocks, but may run on any thread.

    Raises:
        ConfigError: a file is invalid; the error lists every problem on its own line.
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
    # One invalid file fails the reload of all listeners, so that a reload replaces either all
    # certificates or none.
    if problems:
        # Listeners can share a file, and its problem is reported once.
        raise ConfigError(list(dict.fromkeys(problems)))
    return PreparedTls(contexts=contexts, warnings=tuple(dict.fromkeys(warnings)))
