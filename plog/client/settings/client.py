"""`ClientSettings`: the settings of all clients, created from the options that users pass.

`ProducerSettings` and `ConsumerSettings` (in their own modules) and `AdminSettings` (here) extend
it. Use `from_options` or `from_file`, which return only valid and consistent values; the
constructor does not check its arguments. settings_loader.py parses the values, and
unsupported_settings.py lists names that are not settings of plog.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias

from plog.client.settings.common import (
    Address,
    CommonSettings,
    check_common,
    check_servers,
    doubtful_common,
    parse_address,
)
from plog.client.settings.security import (
    SecuritySettings,
    check_sasl,
    check_tls,
    doubtful_security,
)
from plog.client.settings.settings_loader import log_warnings, read_options
from plog.settings import MINUTE_MS, ConfigError, Setting, SettingType, Value, setting, settings_of

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns an OAUTHBEARER token. The engine calls it for each authentication; it must not block."""


class Consequence(NamedTuple):
    """A default that depends on other settings: its field, its value and a warning."""

    attribute: str
    value: Value
    warning: str = ""


@dataclass(frozen=True, kw_only=True)
class ClientSettings(SecuritySettings, CommonSettings):
    """The immutable settings of one client."""

    # The application passes this function; a file cannot contain it, so it is not a table row.
    sasl_oauthbearer_token: TokenSource | None = field(default=None, repr=False)
    # These fields are not settings: names that were set explicitly, even to the default value, and
    # the warnings.
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def from_options(
        cls, options: Mapping[str, object] | None = None, /, **keywords: object
    ) -> Self:
        """Return settings from names with dots or underscores; None means the default.

        A value is a string, as in a file, or has the setting's type: a number, a bool or a list.
        `keywords` override `options`.

        Raises:
            ConfigError: a name or value is invalid, or values conflict. The error lists every
                problem.
        """
        return cls.from_file(None, options, **keywords)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str] | None,
        options: Mapping[str, object] | None = None,
        /,
        **keywords: object,
    ) -> Self:
        """Return settings from a Java properties file; `options` and `keywords` override it.

        Programs share such files, so an unknown name in a file only logs a warning, unless it
        starts with ``ssl.``, ``sasl.`` or ``security.``. Raises the same errors as `from_options`.
        The call blocks while it reads the file.
        """
        # The loader accepts only values that a file can contain, so remove the function first.
        token = keywords.pop("sasl_oauthbearer_token", None)
        if options and "sasl_oauthbearer_token" in options:
            # The mapping belongs to the caller, so change a copy.
            options = dict(options)
            token = token or options.pop("sasl_oauthbearer_token")
        found = read_options(settings_of(cls), path, options or {}, keywords)
        if token is not None and not callable(token):
            found.problems.append("sasl_oauthbearer_token: pass a function that returns a token")
        if found.problems:
            raise ConfigError(found.problems, found.warnings)
        # A type checker cannot know the types of values that are looked up by name.
        values: dict[str, Any] = found.values
        settings = cls(
            sasl_oauthbearer_token=token,  # type: ignore[arg-type]
            explicit=frozenset(found.given),
            **values,
        )
        # Check for conflicts only after all values are valid by themselves.
        problems = [found.located(name, problem) for name, problem in settings.problems()]
        if problems:
            raise ConfigError(problems, found.warnings)
        return settings._settled(found.warnings)

    def _settled(self, warnings: list[str]) -> Self:
        consequences = list(self.consequences())
        warnings = [
            *warnings,
            *self.doubts(),
            *(each.warning for each in consequences if each.warning),
        ]
        # Log the warnings after all checks: if the settings are rejected, the error reports them.
        log_warnings(warnings)
        changes: dict[str, Any] = {each.attribute: each.value for each in consequences}
        return dataclasses.replace(self, warnings=tuple(warnings), **changes)

    def value(self, row: Setting) -> Value:
        """Return the value of one setting."""
        value: Value = getattr(self, row.attribute)
        return value

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield conflicts between values, as (name of one of them, problem)."""
        yield from check_common(self, self.security_protocol)
        if self.uses_tls:
            yield from check_tls(self)
        if self.uses_sasl:
            yield from check_sasl(self, has_token=self.sasl_oauthbearer_token is not None)

    def doubts(self) -> Iterator[str]:
        """Yield a warning for each valid but probably unintended value."""
        yield from doubtful_common(self)
        yield from doubtful_security(self, self.explicit)

    def consequences(self) -> Iterator[Consequence]:
        """Yield defaults that depend on other settings."""
        # As in Kafka, the backoff is constant if only its initial value is set.
        if self.explicit & {"reconnect.backoff.ms", "reconnect.backoff.max.ms"} == {
            "reconnect.backoff.ms"
        }:
            yield Consequence("reconnect_backoff_max_ms", self.reconnect_backoff_ms)


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The immutable settings of one admin client."""

    # As in Kafka, admin clients have a lower default than other clients.
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        5 * MINUTE_MS,
        "How long a connection can be idle before the client closes it; -1 means never.",
        type=SettingType.LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
    )

    bootstrap_controllers: tuple[str, ...] = setting(
        "bootstrap.controllers",
        (),
        "Controllers of an Apache Kafka cluster to connect to directly, instead of"
        " `bootstrap.servers`. They serve requests about the cluster, features, configs, quotas"
        " and users, but not about topics and groups. A plog broker does not have a controller"
        " listener.",
        group="Brokers",
    )

    @property
    def uses_controllers(self) -> bool:
        """Whether this client connects to KRaft controllers instead of brokers."""
        return bool(self.bootstrap_controllers)

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """Return the bootstrap addresses. Raises ValueError, which `from_options` reports."""
        servers = self.bootstrap_controllers or self.bootstrap_servers
        return tuple(parse_address(server)[1] for server in servers)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield conflicts between values, as (name of one of them, problem)."""
        yield from ClientSettings.problems(self)
        controllers = self.bootstrap_controllers
        yield from check_servers("bootstrap.controllers", controllers, self.security_protocol)
        if controllers and self.bootstrap_servers:
            yield "bootstrap.controllers", "conflicts with bootstrap.servers; set only one of them"
