"""Parse ``sasl.jaas.config``, Java's JAAS format for a username and a password.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

Source: javax.security.auth.login.Configuration; Kafka 4.3 JaasConfig, which also allows only one
module and requires the semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plog.error_base import PlogError

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r'\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"'
    r"|'(?P<single>(?:[^'\\]|\\.)*)'"
    r"|(?P<mark>[=;])"
    r"|(?P<word>[^\s=;\"']+))",
    re.DOTALL,
)


class JaasError(PlogError):
    """A JAAS configuration is invalid. The message does not contain its secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    options: Mapping[str, str]

    @property
    def module_name(self) -> str:
        """The module's class name, without its package."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> JaasEntry:
    """Return the single entry in `text`. Raises JaasError.

    >>> parse_jaas('a.PlainLoginModule required username="x" password=\\'y\\';').options
    {'username': 'x', 'password': 'y'}
    """
    tokens = _tokens(text)
    if len(tokens) < 2 or not tokens[0].is_text or tokens[1].text.lower() not in _FLAGS:
        raise JaasError(f"does not start with a login module and one of {', '.join(_FLAGS)}")
    if ";" not in [token.text for token in tokens if not token.is_text]:
        raise JaasError("does not end with a semicolon")
    options: dict[str, str] = {}
    position = 2
    # The loop always reaches a semicolon: the check above ensures that there is one.
    while tokens[position].is_text:
        name, *rest = tokens[position : position + 3]
        if len(rest) < 2 or rest[0] != _EQUALS or not rest[1].is_text:
            # Report the option's number, not its text, which may contain the password.
            raise JaasError(f"option {len(options) + 1} is not of the form name=value")
        if name.text in options:
            raise JaasError(f"contains the option {name.text} twice")
        options[name.text] = rest[1].text
        position += 3
    if tokens[position] == _EQUALS:
        raise JaasError(f"option {len(options) + 1} is not of the form name=value")
    # As in Kafka's JaasConfig, only one module is allowed.
    if position + 1 < len(tokens):
        raise JaasError("continues after the semicolon; use only one login module")
    return JaasEntry(module=tokens[0].text, options=options)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_text: bool


_EQUALS = _Token("=", False)


def _tokens(text: str) -> list[_Token]:
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("has an unclosed quotation mark")
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            # As in Java, a backslash makes the next character literal.
            found.append(_Token(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), True))
        else:
            found.append(_Token(match["mark"] or match["word"], match["mark"] is None))
        position = match.end()
    return found
