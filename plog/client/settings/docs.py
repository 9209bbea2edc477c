"""The clients' settings as text: docs/client-configuration.md and etc/client.properties.

    python -m plog.client.settings.docs markdown > docs/client-configuration.md
    python -m plog.client.settings.docs properties > etc/client.properties

Pure: tables in, text out. Both files are kept in the repository, and a test holds them to this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from plog.client.settings import AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings
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

_MARKDOWN_HEAD = """\
# Settings of clients

<!-- Printed from the tables in plog/client/ by `python -m plog.client.settings.docs markdown`.
     Change it there. -->

Producers, consumers and admin clients are made with these names, as keywords with underscores, or
in a mapping, with dots or underscores:

```python
from plog.client.settings import ProducerSettings

settings = ProducerSettings.from_options(
    {"bootstrap.servers": "localhost:9092"}, linger_ms=20, compression_type="zstd"
)
```

A value is a text, as it would stand in a file, or of the setting's type: a number, `True`, a
list. `None` stands for the default. Names, types, bounds and defaults are Kafka's; where a default
is not, the text says so. Commands read the same names from a file of Java properties
(`--command-config`, `--producer.config`, `--consumer.config`);
[etc/client.properties](../etc/client.properties) has them all with their defaults.

What is wrong is told all at once in a `ConfigError`: a name nobody knows, with the nearest one; a
value, with what is allowed; values that do not go together. In a file a name nobody knows is only
warned of, because other programs may read it, too, unless it looks like one of security. Names of
Kafka that have no effect here, such as `key.serializer`, are warned of with the reason and what to
use instead; so are most of kafka-python's, aiokafka's and librdkafka's that are no other name of
one of these ([more](from-other-clients.md)). Where silence would be dangerous
(`interceptor.classes`, `ssl.engine.factory.class`), they are refused.

A file for a cluster that encrypts and asks who is there:

```properties
bootstrap.servers=kafka-1.example.com:9093,kafka-2.example.com:9093
security.protocol=SASL_SSL
ssl.truststore.location=/etc/plog/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice
sasl.password=correct horse
```

Instead of the last two lines `sasl.jaas.config` takes the line that Java's clients have. Keys and
certificates are PEM; [tls.md](tls.md#java-keystores) converts Java's. With `OAUTHBEARER`, give a
function that returns the token, `sasl_oauthbearer_token=…`, to `from_options` or `from_file`; it
has no place in a file. It is called at each log-in, in the thread that talks to the brokers, so one
that takes its time is a coroutine function.
"""
_SECTIONS = (
    (
        "All clients",
        "A default that is another for one kind of client stands beside it.",
        ClientSettings,
    ),
    ("Producers", "", ProducerSettings),
    ("Consumers", "", ConsumerSettings),
    ("Admin clients", "", AdminSettings),
)
_KINDS = (
    ("producers", ProducerSettings),
    ("consumers", ConsumerSettings),
    ("admin clients", AdminSettings),
)

_PROPERTIES_HEAD = """\
# Settings of plog's clients: every one of them, at its default. Copy what you change, without the
# "#" before it, into a file of your own and give that to a command (--command-config,
# --producer.config, --consumer.config) or to from_file. What is for producers or consumers only is
# ignored by the others, with a warning. docs/client-configuration.md says the same as a table.
# Printed by: python -m plog.client.settings.docs properties
"""


def markdown() -> str:
    """The text of docs/client-configuration.md."""
    columns: Columns = {
        "Setting": name_cell,
        "Default": _default_cell,
        "Allowed": allowed_cell,
        "Meaning": meaning_cell,
    }
    parts = [_MARKDOWN_HEAD]
    for title, text, kind in _SECTIONS:
        parts.append(f"## {title}\n")
        if text:
            parts.append(f"{text}\n")
        for group, rows in by_group(_own_rows(kind)):
            parts += [f"### {group}\n", table(columns, rows)]
    return "\n".join(parts)


def properties() -> str:
    """The text of etc/client.properties: nothing but comments."""
    parts = [_PROPERTIES_HEAD]
    for title, _, kind in _SECTIONS:
        for group, rows in by_group(_own_rows(kind)):
            parts.append(f"# ---- {title}: {group} ----\n")
            parts.extend(commented(row, _other_defaults(row)) for row in rows)
    return "\n".join(parts)


def _own_rows(kind: type[ClientSettings]) -> Iterator[Setting]:
    """The rows of a kind of client, without those that all clients have."""
    common = settings_of(ClientSettings)
    for name, row in settings_of(kind).items():
        if kind is ClientSettings or name not in common:
            yield row


def _other_defaults(row: Setting, mark: str = "") -> str:
    """The kinds of clients for which the default is another one, empty if there is none."""
    found = []
    for kind_name, kind in _KINDS:
        other = settings_of(kind).get(row.name)
        if other is not None and other.default != row.default:
            found.append(f"{mark}{other.format(other.default)}{mark} for {kind_name}")
    return ", ".join(found)


def _default_cell(row: Setting) -> str:
    others = _other_defaults(row, "`")
    return f"{default_cell(row)}; {others}" if others else default_cell(row)


def main(arguments: list[str]) -> int:
    """Print one of the two files."""
    printers = {"markdown": markdown, "properties": properties}
    return print_one(printers, arguments, program="plog.client.settings.docs")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
