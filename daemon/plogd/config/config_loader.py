"""Reading the settings from files and the command line, at the start and again on SIGHUP.

Each file is followed by ``conf.d/*.properties`` beside it, in the order of their names; ``-o k=v``
comes last, and the last one wins. Wrong values are collected and reported together, each with its
file and line; an unknown name, or one plog does not use yet, is a warning. This is the one package
of plogd that reads files before there is a broker with a Files port; the daemon gives it a reader
that does not wait for ever (settings_file.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from plog.error_base import reason_of
from plog.properties import PropertiesError, decode_properties, parse_properties
from plog.settings import ConfigError, Setting, Value, settings_of
from plogd.config.broker_config import BrokerConfig, cross_check, why_unused
from plogd.config.known_settings import REFUSED
from plogd.config.listener_overrides import overridden_row, overrides_of_nobody
from plogd.config.tls_settings import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was set: a line of a file, or the command line if `path` is None."""

    path: str | None = None
    line: int = 0

    def __str__(self) -> str:
        return "-o" if self.path is None else f"{self.path}:{self.line}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration that may be used, what to warn about, and where each set value came from."""

    config: BrokerConfig
    warnings: tuple[str, ...]
    sources: Mapping[str, Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """What a reload changes: `config` to use from now on, the names it changes, and the names
    whose new values need a restart; `config` still has their old ones.
    """

    config: BrokerConfig
    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A value as somebody wrote it."""

    name: str
    text: str
    origin: Origin

    def __str__(self) -> str:
        row = _row(self.name)
        text = "(hidden)" if row is not None and row.sensitive else self.text
        return f"{self.origin} {self.name}={text}"


def load_config(
    files: Sequence[str | Path],
    overrides: Sequence[str] = (),
    *,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> LoadedConfig:
    """The settings of `files` and then of `overrides` (``name=value``).

    Args:
        read: returns what is in a file, or raises OSError.

    Raises:
        ConfigError: a file cannot be read, or a value is wrong; with every problem there is.
    """
    problems: list[str] = []
    given = [*_read_files([Path(file) for file in files], read, problems)]
    given += _read_overrides(overrides, problems)
    chosen, warnings = _choose(given)
    problems += [f"{g}: {REFUSED[g.name]}" for g in given if g.name in REFUSED and g.text.strip()]
    values = _parse(chosen, problems)
    if problems:
        raise ConfigError(problems, warnings)
    of_listeners = {name: values.pop(name) for name in list(values) if overridden_row(name)}
    config = BrokerConfig(explicit=frozenset(chosen), listener_overrides=of_listeners, **values)
    problems = [_located(name, problem, config, chosen) for name, problem in cross_check(config)]
    if problems:
        raise ConfigError(problems, warnings)
    for name in overrides_of_nobody(of_listeners, config.bound_listeners()):
        warnings.append(f"{chosen[name].origin} {name} has no effect: no listener has that name")
    sources = {name: g.origin for name, g in chosen.items()}
    return LoadedConfig(config=config, warnings=tuple(warnings), sources=sources)


def reloadable(old: BrokerConfig, new: BrokerConfig) -> Reload:
    """What of `new` a running broker that uses `old` may take over; both as the files have it."""
    applied: list[Setting] = []
    needs_restart: list[Setting] = []
    for row in settings_of(BrokerConfig).values():
        if old.value(row) != new.value(row):
            (needs_restart if row.update == "read-only" else applied).append(row)
    overrides = _reloadable_overrides(old, new)
    kept = {row.name for row in needs_restart} | overrides.needs_restart
    changes: dict[str, Any] = {row.attribute: new.value(row) for row in applied}
    explicit = (new.explicit - kept) | (old.explicit & kept)
    return Reload(
        config=dataclasses.replace(
            old, explicit=explicit, listener_overrides=overrides.values, **changes
        ),
        applied=(*(row.name for row in applied), *sorted(overrides.applied)),
        needs_restart=(
            *(row.name for row in needs_restart),
            *sorted(overrides.needs_restart),
        ),
    )


def without_tls(reload: Reload, old: BrokerConfig) -> Reload:
    """`reload` but with the settings of TLS as they were, for when their files cannot be used."""
    names = settings_of(TlsSettings).keys() | old.listener_overrides.keys()
    names |= reload.config.listener_overrides.keys()
    kept: dict[str, Any] = {
        row.attribute: old.value(row) for row in settings_of(TlsSettings).values()
    }
    explicit = (reload.config.explicit - names) | (old.explicit & names)
    return Reload(
        config=dataclasses.replace(
            reload.config, explicit=explicit, listener_overrides=old.listener_overrides, **kept
        ),
        applied=tuple(name for name in reload.applied if name not in names),
        needs_restart=reload.needs_restart,
    )


class _Overrides(NamedTuple):
    values: Mapping[str, Value]
    applied: set[str]
    needs_restart: set[str]


def _reloadable_overrides(old: BrokerConfig, new: BrokerConfig) -> _Overrides:
    before, after = old.listener_overrides, new.listener_overrides
    values = dict(after)
    applied: set[str] = set()
    needs_restart: set[str] = set()
    for name in before.keys() | after.keys():
        row = overridden_row(name)
        assert row is not None, "only what can be overridden is kept as an override"
        if (name in before, before.get(name)) == (name in after, after.get(name)):
            continue
        if row.update != "read-only":
            applied.add(name)
            continue
        needs_restart.add(name)
        values.pop(name, None)
        if name in before:
            values[name] = before[name]
    return _Overrides(values, applied, needs_restart)


def _read_files(
    files: Sequence[Path], read: Callable[[Path], bytes], problems: list[str]
) -> Iterator[_Given]:
    for i, file in enumerate(files):
        yield from _read_file(file, read, problems)
        if file.parent not in [later.parent for later in files[i + 1 :]]:
            for extra in _extra_files(file.parent / "conf.d", problems):
                yield from _read_file(extra, read, problems)


def _extra_files(folder: Path, problems: list[str]) -> list[Path]:
    try:
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(f"{folder}: {reason_of(error)}")
        return []
    return [file for file in files if file.suffix == ".properties" and file.name[0] != "."]


def _read_file(file: Path, read: Callable[[Path], bytes], problems: list[str]) -> Iterator[_Given]:
    try:
        data = read(file)
    except OSError as error:
        problems.append(f"{file}: {reason_of(error)}")
        return
    try:
        assignments = parse_properties(decode_properties(data))
    except PropertiesError as error:
        problems.append(f"{file}:{error.line}: {error.problem}")
        return
    for assignment in assignments:
        origin = Origin(path=str(file), line=assignment.line)
        yield _Given(name=assignment.key, text=assignment.value, origin=origin)


def _read_overrides(overrides: Sequence[str], problems: list[str]) -> Iterator[_Given]:
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            problems.append(f"-o {override}: not of the form name=value")
            continue
        yield _Given(name=name.strip(), text=text, origin=Origin())


def _choose(given: Sequence[_Given]) -> tuple[dict[str, _Given], list[str]]:
    """The last value given for each setting, by its own name even if an alias was used."""
    rows = settings_of(BrokerConfig)
    own_name = {alias: row.name for row in rows.values() for alias in row.aliases}
    chosen: dict[str, _Given] = {}
    warnings: list[str] = []
    for g in given:
        name = own_name.get(g.name, g.name)
        if name not in rows and overridden_row(name) is None:
            warnings.append(f"{g.origin} {why_unused(g.name)}")
            continue
        earlier = chosen.get(name)
        if earlier is not None and earlier.name != g.name and earlier.text != g.text:
            warnings.append(f"{g} replaces {earlier}: they are two names of one setting")
        chosen[name] = g
    return chosen, list(dict.fromkeys(warnings))


def _parse(chosen: Mapping[str, _Given], problems: list[str]) -> dict[str, Any]:
    """Values by attribute, those of single listeners by name; a checker cannot know the types."""
    values: dict[str, Any] = {}
    for name, g in chosen.items():
        row = _row(name)
        assert row is not None, "what is no setting was left out"
        try:
            value = row.parse(g.text)
        except ValueError as error:
            problems.append(f"{g}: {error}")
        else:
            values[name if overridden_row(name) else row.attribute] = value
    return values


def _row(name: str) -> Setting | None:
    return settings_of(BrokerConfig).get(name) or overridden_row(name)


def _located(name: str, problem: str, config: BrokerConfig, chosen: Mapping[str, _Given]) -> str:
    if name in chosen:
        return f"{chosen[name]}: {problem}"
    row = settings_of(BrokerConfig)[name]
    if config.value(row) is None:
        return f"{name} is not set: {problem}"
    return f"{name}={row.format(config.value(row))} (the default): {problem}"
