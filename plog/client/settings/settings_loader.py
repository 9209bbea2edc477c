"""Read a client's settings from a file, a mapping and keyword arguments.

Keyword arguments override the mapping, which overrides the file. All problems are collected, each
with the name as written and the line in the file. Callers pass the rows of a settings table; the
table itself checks whether the values are consistent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plog.client.settings.other_client_names import OTHER_CLIENTS
from plog.client.settings.unsupported_settings import (
    FOREIGN_PREFIXES,
    MATCHING_VALUES,
    REFUSED,
    why_without_effect,
)
from plog.error_base import reason_of
from plog.properties import PropertiesError, decode_properties, parse_properties
from plog.settings import Setting, Value, nearest_name

Servers = str | Sequence[str] | None
"""Bootstrap servers as an application passes them: a list, or text such as ``host:port,…``."""

# Unknown names with these prefixes are errors: a typo must not disable security.
_SECURITY = ("ssl.", "sasl.", "security.", "zookeeper.ssl.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value as written by the user; `origin` is its file and line, or empty in a program."""

    written: str
    value: object
    origin: str = ""

    @property
    def name(self) -> str:
        """The name with dots."""
        # Python argument names cannot contain dots, so programs use underscores.
        return self.written.strip().replace("_", ".")

    @property
    def is_empty(self) -> bool:
        """Whether the value is an empty string or list, or false."""
        return self.is_blank or self.value in ("false", False)

    @property
    def is_blank(self) -> bool:
        """Whether the value is an empty string or list."""
        return self.value in ("", [], ())


@dataclass(slots=True)
class Reading:
    """The result of `read_options`: values by attribute, their origins by name, and problems."""

    rows: Mapping[str, Setting]
    values: dict[str, Value] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def located(self, name: str, problem: str) -> str:
        """Return `problem` with the name, value and origin of the setting as a prefix."""
        row = self.rows[name]
        given = self.given.get(name)
        if given is not None:
            return f"{given.origin}{given.written}={_shown(row, given.value)}: {problem}"
        default = row.format(row.default)
        if not default:
            return f"{name} is not set: {problem}"
        return f"{name}={default} (the default): {problem}"


def read_options(
    rows: Mapping[str, Setting],
    path: str | os.PathLike[str] | None,
    options: Mapping[str, object],
    keywords: Mapping[str, object],
) -> Reading:
    """Read the values for `rows`; collect errors in `Reading.problems` instead of raising them."""
    reading = Reading(rows)
    # Aliases are names in other clients that have the same meaning and unit.
    own_name = {alias: row.name for row in rows.values() for alias in row.aliases}
    layers: list[Iterable[Given]] = [_of_mapping(options), _of_mapping(keywords)]
    if path is not None:
        # Later layers override earlier layers, so the file must be first.
        layers.insert(0, _of_file(path, reading.problems))
    for layer in layers:
        in_layer: dict[str, Given] = {}
        for given in layer:
            name = own_name.get(given.name, given.name)
            if name not in rows:
                _check_unknown_name(given, reading)
                continue
            earlier = in_layer.get(name)
            # In a file, the last line applies, as in Java. In a program, two names for one setting
            # are a mistake.
            if earlier is not None and not given.origin and earlier.value != given.value:
                reading.problems.append(
                    f"{earlier.written} and {given.written} are the same setting; use only one of"
                    " them"
                )
            in_layer[name] = given
        reading.given.update(in_layer)
    for name, given in reading.given.items():
        try:
            reading.values[rows[name].attribute] = rows[name].take(given.value)
        except ValueError as error:
            reading.problems.append(reading.located(name, str(error)))
    return reading


def _of_mapping(options: Mapping[str, object]) -> Iterator[Given]:
    for name, value in options.items():
        # None means the default, so that callers can pass on their own optional parameters.
        if value is not None:
            yield Given(written=name, value=value)


def _of_file(path: str | os.PathLike[str], problems: list[str]) -> Iterator[Given]:
    try:
        with open(path, "rb") as file:
            assignments = parse_properties(decode_properties(file.read()))
    except OSError as error:
        problems.append(f"{os.fspath(path)}: {reason_of(error)}")
        return
    except PropertiesError as error:
        problems.append(f"{os.fspath(path)}:{error.line}: {error.problem}")
        return
    for assignment in assignments:
        origin = f"{os.fspath(path)}:{assignment.line}: "
        yield Given(written=assignment.key, value=assignment.value, origin=origin)


def _check_unknown_name(given: Given, reading: Reading) -> None:
    """Record a problem or a warning for a name that is not a setting of this client."""
    name, where = given.name, f"{given.origin}{given.written}"
    if name in OTHER_CLIENTS:
        _check_other_client_name(given, where, reading)
        return
    if name in REFUSED:
        # An empty value or false disables the setting, which does no harm.
        if not given.is_empty:
            reading.problems.append(f"{where}: {REFUSED[name]}")
        return
    reason = why_without_effect(name)
    if reason is not None:
        # If the value matches this client's behavior, no warning is needed.
        if given.is_blank or str(given.value).strip().lower() == MATCHING_VALUES.get(name):
            return
        reading.warnings.append(f"{where} has no effect: {reason}")
        return
    # Programs share files, so ignore names that are clearly meant for other programs.
    if given.origin and name.startswith(FOREIGN_PREFIXES):
        return
    aliases = [alias for row in reading.rows.values() for alias in row.aliases]
    nearest = nearest_name(name, [*reading.rows, *aliases])
    # Ignoring a misspelled security setting could leave connections insecure without the user
    # noticing.
    is_about_security = name.startswith(_SECURITY) or (nearest or "").startswith(_SECURITY)
    # Write the suggestion with underscores if the user does.
    if nearest is not None and "_" in given.written:
        nearest = nearest.replace(".", "_")
    hint = f"; did you mean {nearest}?" if nearest else ""
    found = f"{where} is not a setting of this client{hint}"
    (reading.warnings if given.origin and not is_about_security else reading.problems).append(found)


def _check_other_client_name(given: Given, where: str, reading: Reading) -> None:
    advice, kind, matching_values = OTHER_CLIENTS[given.name]
    # Write the advice with underscores if the user does.
    if kind == "renamed" and "_" in given.written:
        advice = advice.replace(".", "_")
    if given.is_blank or str(given.value).strip().lower() in matching_values:
        return
    if kind == "idle":
        reading.warnings.append(f"{where} has no effect: {advice}")
    elif kind == "refused" or not given.origin:
        reading.problems.append(f"{where}: {advice}")
    else:
        # Programs share files, so an unknown name in a file is only a warning.
        reading.warnings.append(f"{where} is not a setting of this client: {advice}")


def _shown(row: Setting, value: object) -> str:
    # Error messages end up in logs, which must not contain passwords.
    if row.sensitive:
        return "(hidden)"
    return value if isinstance(value, str) else repr(value)


def log_warnings(warnings: list[str]) -> None:
    """Log the warnings; by default, logging prints them to standard error."""
    if warnings:
        # Most programs have no warnings, and the import takes 10 ms.
        import logging

        logger = logging.getLogger("plog.client")
        for warning in warnings:
            logger.warning("%s", warning)
