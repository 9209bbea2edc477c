"""`ClientSettings`: what all clients are set by, and how such a table is made from what users give.

`ProducerSettings` and `ConsumerSettings` (their own files) and `AdminSettings` (here) add to it.
Use `from_options` or `from_file`: what they return holds only allowed values that go together. A
table made by hand, as in tests, is not checked. What single names mean when they are no setting is
unsupported_settings.py's knowledge, reading the values settings_loader.py's.
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
"""Gets a token for OAUTHBEARER; called at each log-in, so it is quick, or a coroutine function."""


class Consequence(NamedTuple):
    """A setting nobody has set follows others: its field, its value, and what to warn of."""

    attribute: str
    value: Value
    warning: str = ""


@dataclass(frozen=True, kw_only=True)
class ClientSettings(SecuritySettings, CommonSettings):
    """The settings of one client; immutable."""

    # A function, so it has no place in a file. It is for the program that makes the client.
    sasl_oauthbearer_token: TokenSource | None = field(default=None, repr=False)
    # Names somebody has set, even if to the default, and what was warned of. Not settings.
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def from_options(
        cls, options: Mapping[str, object] | None = None, /, **keywords: object
    ) -> Self:
        """The settings given by name, with dots or underscores; None stands for the default.

        Values are texts, as in a file, or of the setting's type: numbers, bools, lists. `keywords`
        are stronger than `options`.

        Raises:
            ConfigError: a name or a value is wrong, or they do not go together; with every problem.
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
        """As `from_options`, with a file of Java properties beneath the options.

        A name in it that nobody knows is a warning, as such files are shared with other programs;
        unless it looks like one of ``ssl.``, ``sasl.`` or ``security.``. Blocks on the file.
        """
        token = keywords.pop("sasl_oauthbearer_token", None)
        if options and "sasl_oauthbearer_token" in options:
            options = dict(options)
            token = token or options.pop("sasl_oauthbearer_token")
        found = read_options(settings_of(cls), path, options or {}, keywords)
        if token is not None and not callable(token):
            found.problems.append("sasl_oauthbearer_token: a function that returns a token, please")
        if found.problems:
            raise ConfigError(found.problems, found.warnings)
        # A checker cannot know the types of values found by name.
        values: dict[str, Any] = found.values
        settings = cls(
            sasl_oauthbearer_token=token,  # type: ignore[arg-type]
            explicit=frozenset(found.given),
            **values,
        )
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
        log_warnings(warnings)
        changes: dict[str, Any] = {each.attribute: each.value for each in consequences}
        return dataclasses.replace(self, warnings=tuple(warnings), **changes)

    def value(self, row: Setting) -> Value:
        """The value of one setting."""
        value: Value = getattr(self, row.attribute)
        return value

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with the values together, as (name of one of them, problem)."""
        yield from check_common(self, self.security_protocol)
        if self.uses_tls:
            yield from check_tls(self)
        if self.uses_sasl:
            yield from check_sasl(self, has_token=self.sasl_oauthbearer_token is not None)

    def doubts(self) -> Iterator[str]:
        """What is allowed and hardly meant, a line each."""
        yield from doubtful_common(self)
        yield from doubtful_security(self, self.explicit)

    def consequences(self) -> Iterator[Consequence]:
        """Values that nobody has set and that follow from others, as in Kafka."""
        if self.explicit & {"reconnect.backoff.ms", "reconnect.backoff.max.ms"} == {
            "reconnect.backoff.ms"
        }:
            yield Consequence("reconnect_backoff_max_ms", self.reconnect_backoff_ms)


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The settings of one admin client; immutable."""

    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        5 * MINUTE_MS,
        "A connection without requests is closed after this long; -1 never.",
        type=SettingType.LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
    )

    bootstrap_controllers: tuple[str, ...] = setting(
        "bootstrap.controllers",
        (),
        "Instead of `bootstrap.servers`: controllers of an Apache Kafka cluster, to talk to them"
        " directly. They answer about the cluster, features, configs, quotas and users; topics and"
        " groups are brokers' business. A plog broker has no listener for this.",
        group="Brokers",
    )

    @property
    def uses_controllers(self) -> bool:
        """Whether this client talks to the controllers of a KRaft quorum, not to brokers."""
        return bool(self.bootstrap_controllers)

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """Those to ask first as addresses. Raises ValueError, which `from_options` reports."""
        servers = self.bootstrap_controllers or self.bootstrap_servers
        return tuple(parse_address(server)[1] for server in servers)

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with the values together, as (name of one of them, problem)."""
        yield from ClientSettings.problems(self)
        controllers = self.bootstrap_controllers
        yield from check_servers("bootstrap.controllers", controllers, self.security_protocol)
        if controllers and self.bootstrap_servers:
            yield "bootstrap.controllers", "say where to begin in one way: bootstrap.servers is set"
