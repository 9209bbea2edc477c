"""The settings as text: docs/configuration.md and etc/server.properties.

    python -m plogd.config.docs markdown > docs/configuration.md
    python -m plogd.config.docs properties > etc/server.properties

Pure: tables in, text out. Both files are kept in the repository, and a test holds them to this.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping

from plogd.config.broker_config import BrokerConfig
from plogd.config.properties import escape_value
from plogd.config.setting import HOUR_MS, INT_MAX, LONG_MAX, Setting, settings_of
from plogd.topic_config import TopicConfig

_MARKDOWN_HEAD = """\
# Settings

<!-- Printed from the tables in daemon/plogd/config/ and daemon/plogd/topic_config.py by
     `python -m plogd.config.docs markdown`. Change it there. -->

The broker reads Java `.properties` files: `twistd -n plog --config server.properties`. After each
file come the files `conf.d/*.properties` beside it, in the order of their names, and last the
command line's `-o name=value`; the last one wins. `--check-config` reads everything, says what is
wrong and stops.

Names, types, bounds and defaults are Kafka's; where a default is not, the text says so. Settings
Kafka lacks start with `plog.`. A name nobody knows gives a warning with the nearest name, a name
that Kafka knows and plog does not use yet gives one that says so. A wrong value keeps the broker
from starting: it is reported with its file, its line and what would be allowed.

*Changes* says when a new value counts. **restart**: when the broker starts again; a `SIGHUP`, which
reads the files again, reports that. **reload**: after a `SIGHUP`. **at once**: after a `SIGHUP`,
and when a client sets it with Kafka's admin API, as `kafka-configs.sh --alter` does, for one broker
(`--entity-name 1`) or for all (`--entity-default`). **at once, per broker**: for one broker only.
What clients set survives a restart and is stronger than the files: first what was set for this
broker, then what was set for all of them, then the files, then the default. To give it back to the
files, delete it (`--delete-config`). A name that is not in these tables is refused; Kafka keeps any
name for a broker, in case a plug-in reads it.

[etc/server.properties](../etc/server.properties) holds the broker's settings with their defaults.
"""

_TOPICS_HEAD = """\
## Settings of a topic

Given when a topic is created, and changed at once at any time, as with `kafka-configs.sh
--entity-type topics`. A segment keeps its indexes' settings until the next begins. A topic that
does not set one gets the broker's value, the first of
those named under *Falls back to* that is set; without such a name it gets the default.
"""

_PROPERTIES_HEAD = """\
# Settings of a plog broker: every one of them, at its default. To change one, remove the "#" before
# it, or put the line into a file conf.d/*.properties beside this one, which is read after it.
# docs/configuration.md says the same as a table. Printed by: python -m plogd.config.docs properties
"""


_CHANGES = {
    "read-only": "restart",
    "reload": "reload",
    "per-broker": "at once, per broker",
    "cluster-wide": "at once",
}
_FACTS = {
    "read-only": "",
    "reload": "Reloaded by SIGHUP",
    "per-broker": "Reloaded by SIGHUP, or set at run time",
    "cluster-wide": "Reloaded by SIGHUP, or set at run time",
}


def markdown() -> str:
    """The text of docs/configuration.md."""
    parts = [_MARKDOWN_HEAD]
    for group, rows in _by_group(settings_of(BrokerConfig)):
        parts.append(f"## {group}\n")
        parts.append(_table(("Setting", "Default", "Allowed", "Changes", "Meaning"), rows))
    parts.append(_TOPICS_HEAD)
    topic_rows = list(settings_of(TopicConfig).values())
    parts.append(_table(("Setting", "Default", "Allowed", "Falls back to", "Meaning"), topic_rows))
    return "\n".join(parts)


def properties() -> str:
    """The text of etc/server.properties: nothing but comments."""
    parts = [_PROPERTIES_HEAD]
    for group, rows in _by_group(settings_of(BrokerConfig)):
        parts.append(f"# ---- {group} ----\n")
        parts.extend(_commented(row) for row in rows)
    return "\n".join(parts)


def _by_group(rows: Mapping[str, Setting]) -> Iterator[tuple[str, list[Setting]]]:
    group = ""
    members: list[Setting] = []
    for row in rows.values():
        if row.group:
            if members:
                yield group, members
            group, members = row.group, []
        members.append(row)
    yield group, members


def _table(columns: tuple[str, ...], rows: list[Setting]) -> str:
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for row in rows:
        cells = {
            "Setting": "<br>".join([f"`{row.name}`", *(f"or `{name}`" for name in row.aliases)]),
            "Default": _default_cell(row),
            "Allowed": row.type.name.lower() + (f": {row.allowed}" if row.allowed else ""),
            "Changes": _CHANGES[row.update],
            "Falls back to": "<br>".join(f"`{name}`" for name, _ in row.synonyms),
            "Meaning": row.doc,
        }
        lines.append(" | ".join(cells[column] for column in columns))
    return "".join(f"| {line} |\n" for line in lines)


def _default_cell(row: Setting) -> str:
    text = row.format(row.default)
    if text is None:
        return "not set"
    # An entry of a list has no white space, so that a table may break behind its comma.
    shown = f"`{text.replace(',', ', ')}`" if text else "empty"
    readable = _readable(row)
    return f"{shown} {readable}".strip()


def _readable(row: Setting) -> str:
    """The unit, and what a large number amounts to: ``(1 GiB)``, ``ms (7 days)``."""
    value = row.default
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    if value in (INT_MAX, LONG_MAX):
        return f"{row.unit} (the largest number)".strip()
    units: tuple[tuple[int, str], ...] = ()
    if row.unit == "bytes":
        units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    elif row.unit == "ms":
        units = ((24 * HOUR_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1_000, "s"))
    for size, name in units:
        if value >= size and value % size == 0:
            return f"{row.unit} ({value // size} {name})"
    return row.unit


def _commented(row: Setting) -> str:
    text = textwrap.wrap(row.doc.replace("`", ""), 98, break_on_hyphens=False)
    facts = [f"Allowed: {row.allowed}" if row.allowed else "", row.unit and f"Unit: {row.unit}"]
    facts.append(_FACTS[row.update])
    text += [". ".join(fact for fact in facts if fact) + "."] if any(facts) else []
    value = row.format(row.default)
    shown = "" if value is None else escape_value(value)
    return "".join(f"# {line}\n" for line in text) + f"#{row.name}={shown}\n"


def main(arguments: list[str]) -> int:
    """Print one of the two files."""
    printers = {"markdown": markdown, "properties": properties}
    if len(arguments) != 1 or arguments[0] not in printers:
        sys.stderr.write(f"usage: python -m plogd.config.docs {'|'.join(printers)}\n")
        return 2
    sys.stdout.write(printers[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
