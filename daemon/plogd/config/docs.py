"""The settings as text: docs/configuration.md and etc/server.properties.

    python -m plogd.config.docs markdown > docs/configuration.md
    python -m plogd.config.docs properties > etc/server.properties

Pure: tables in, text out. Both files are kept in the repository, and a test holds them to this.
"""

from __future__ import annotations

import sys

from plog.settings import Setting, settings_of
from plog.settings_text import (
    Columns,
    allowed_cell,
    by_group,
    commented,
    default_cell,
    meaning_cell,
    name_cell,
    print_one,
    table,
)
from plogd.config.broker_config import BrokerConfig
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
    broker: Columns = {
        "Setting": name_cell,
        "Default": default_cell,
        "Allowed": allowed_cell,
        "Changes": _changes_cell,
        "Meaning": meaning_cell,
    }
    topic: Columns = {
        "Setting": name_cell,
        "Default": default_cell,
        "Allowed": allowed_cell,
        "Falls back to": _falls_back_cell,
        "Meaning": meaning_cell,
    }
    parts = [_MARKDOWN_HEAD]
    for group, rows in by_group(settings_of(BrokerConfig).values()):
        parts += [f"## {group}\n", table(broker, rows)]
    parts += [_TOPICS_HEAD, table(topic, settings_of(TopicConfig).values())]
    return "\n".join(parts)


def properties() -> str:
    """The text of etc/server.properties: nothing but comments."""
    parts = [_PROPERTIES_HEAD]
    for group, rows in by_group(settings_of(BrokerConfig).values()):
        parts.append(f"# ---- {group} ----\n")
        parts.extend(commented(row, _FACTS[row.update]) for row in rows)
    return "\n".join(parts)


def _changes_cell(row: Setting) -> str:
    return _CHANGES[row.update]


def _falls_back_cell(row: Setting) -> str:
    return "<br>".join(f"`{name}`" for name, _ in row.synonyms)


def main(arguments: list[str]) -> int:
    """Print one of the two files."""
    printers = {"markdown": markdown, "properties": properties}
    return print_one(printers, arguments, program="plogd.config.docs")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
