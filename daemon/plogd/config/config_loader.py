"""Load the broker's settings from files and the command line, at startup and on SIGHUP.

Each file is followed by ``conf.d/*.properties`` in the same directory, sorted by name; ``-o k=v``
options come last, and the last value wins. Invalid values are collected and reported together, each
with its file and line. Unknown names, and names that plog does not use yet, are warnings.
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
from plogd.config.listener_overrides import overridden_row, overrides_without_listener
from plogd.config.tls_settings import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The place where a value was set: a line of a file, or the command line if `path` is None."""

    path: str | None = None
    line: int = 0

    def __str__(self) -> str:
        return "-o" if self.path is None else f"{self.path}:{self.line}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A valid configuration, its warnings, and the origin of each explicitly set value."""

    config: BrokerConfig
    warnings: tuple[str, ...]
    sources: Mapping[str, Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The result of a reload: the configuration to use, and the names of changed settings.

    `config` keeps the old values of the settings in `needs_restart`.
    """

    config: BrokerConfig
    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A setting's text and its origin, before it is parsed."""

    name: str
    text: str
    origin: Origin

    def __str__(self) -> str:
        row = _row(self.name)
        # Error messages end up in logs, which must not contain passwords.
        text = "(hidden)" if row is not None and row.sensitive else self.text
        return f"{self.origin} {self.name}={text}"


def load_config(
    files: Sequence[str | Path],
    overrides: Sequence[str] = (),
    *,
    read: Callable[[Path], bytes] = Path.read_bytes,
    state_directories: str = "",
) -> LoadedConfig:
    """Load the settings from `files` and then from `overrides` (``name=value``).

    Args:
        read: returns the content of a file, or raises OSError. At startup, no Files port exists
            yet; the daemon passes a reader with a timeout (settings_file.py).
        state_directories: systemd's ``$STATE_DIRECTORY``: paths separated by ":". The first path
            holds the data if ``log.dirs`` is not set.

    Raises:
        ConfigError: a file cannot be read or a value is invalid; the error lists every problem.
    """
    problems: list[str] = []
    given = [*_read_files([Path(file) for file in files], read, problems)]
    given += _read_overrides(overrides, problems)
    chosen, warnings = _choose(given)
    # In Kafka, an empty value means that no class is used, so it is accepted here, too.
    problems += [f"{g}: {REFUSED[g.name]}" for g in given if g.name in REFUSED and g.text.strip()]
    # Only the last value of each setting is parsed; earlier values may be invalid.
    values = _parse(chosen, problems)
    # Settings can be checked together only if each of them is valid.
    if problems:
        raise ConfigError(problems, warnings)
    # Values for single listeners have no field in `BrokerConfig`.
    of_listeners = {name: values.pop(name) for name in list(values) if overridden_row(name)}
    config = BrokerConfig(
        explicit=frozenset(chosen),
        listener_overrides=of_listeners,
        state_directory=state_directories.partition(":")[0] or None,
        **values,
    )
    problems = [_located(name, problem, config, chosen) for name, problem in cross_check(config)]
    if problems:
        raise ConfigError(problems, warnings)
    # Only a warning, because Kafka ignores these names.
    for name in overrides_without_listener(of_listeners, config.bound_listeners()):
        warnings.append(f"{chosen[name].origin} {name} has no effect: no listener has that name")
    sources = {name: g.origin for name, g in chosen.items()}
    return LoadedConfig(config=config, warnings=tuple(warnings), sources=sources)


def reloadable(old: BrokerConfig, new: BrokerConfig) -> Reload:
    """Return the changes from `old` to `new` that a running broker may apply.

    Both configurations exclude values set by clients.
    """
    applied: list[Setting] = []
    needs_restart: list[Setting] = []
    for row in settings_of(BrokerConfig).values():
        if old.value(row) != new.value(row):
            (needs_restart if row.update == "read-only" else applied).append(row)
    overrides = _reloadable_overrides(old, new)
    kept = {row.name for row in needs_restart} | overrides.needs_restart
    changes: dict[str, Any] = {row.attribute: new.value(row) for row in applied}
    # A setting that keeps its old value also keeps its old state, that is, whether it was set
    # explicitly.
    explicit = (new.explicit - kept) | (old.explicit & kept)
    return Reload(
        # Based on `old`, so that everything that cannot be reloaded keeps its value.
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
    """Return `reload` with the old TLS settings, for use when the new TLS files are invalid."""
    # All of them are kept together, because a new key does not fit an old certificate.
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
        assert row is not None, "listener_overrides holds only settings that can be overridden"
        # None can be a value, so presence is compared as well.
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
        # After the last file of a directory, so that its conf.d is read once.
        if file.parent not in [later.parent for later in files[i + 1 :]]:
            for extra in _extra_files(file.parent / "conf.d", problems):
                yield from _read_file(extra, read, problems)


def _extra_files(folder: Path, problems: list[str]) -> list[Path]:
    try:
        # Sorted by name, so that the last value does not depend on the file system's order.
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        # The directory is optional.
        return []
    except OSError as error:
        problems.append(f"{folder}: {reason_of(error)}")
        return []
    # Editors and package managers leave hidden files and backups, such as .dpkg-old.
    return [file for file in files if file.suffix == ".properties" and file.name[0] != "."]


def _read_file(file: Path, read: Callable[[Path], bytes], problems: list[str]) -> Iterator[_Given]:
    try:
        data = read(file)
    except OSError as error:
        # Reading continues, so that the operator sees the problems of all files at once.
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
            problems.append(f"-o {override}: expected name=value")
            continue
        # `Setting.parse` trims the value.
        yield _Given(name=name.strip(), text=text, origin=Origin())


def _choose(given: Sequence[_Given]) -> tuple[dict[str, _Given], list[str]]:
    """Return the last value of each setting by its primary name, and the warnings."""
    rows = settings_of(BrokerConfig)
    # log.dir and log.dirs are one setting here, so the later of the two wins, as for equal names.
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
            # Two different names, so the operator may not know that one overrides the other.
            warnings.append(f"{g} overrides {earlier}: both names refer to the same setting")
        chosen[name] = g
    return chosen, list(dict.fromkeys(warnings))


def _parse(chosen: Mapping[str, _Given], problems: list[str]) -> dict[str, Any]:
    """Return the values by attribute, and the values of single listeners by name.

    The values are Any, because a type checker cannot know the type of each setting.
    """
    values: dict[str, Any] = {}
    for name, g in chosen.items():
        row = _row(name)
        assert row is not None, "_choose drops unknown names"
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
