"""JAAS lines are parsed, and errors in them are reported."""

from __future__ import annotations

import pytest

from plog.client.settings.jaas import JaasError, parse_jaas

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="s";', {"username": "alice", "password": "s"}),
        ("  username = alice\n\tpassword='s' ;  ", {"username": "alice", "password": "s"}),
        (r'username="a\"b" password="c\\d";', {"username": 'a"b', "password": r"c\d"}),
        ('username="a=b;c" password="";', {"username": "a=b;c", "password": ""}),
        ("""username="it's" password='"';""", {"username": "it's", "password": '"'}),
        (";", {}),
    ],
)
def test_option_values_may_be_quoted(options: str, expected: dict[str, str]) -> None:
    entry = parse_jaas(f"{MODULE} required {options}")
    assert entry.module == MODULE
    assert entry.module_name == "ScramLoginModule"
    assert entry.options == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not start with a login module"),
        ("alice", "does not start with a login module"),
        ("alice:secret", "does not start with a login module"),
        (f'{MODULE} username="a";', "does not start with a login module"),
        (f'{MODULE} required username="a"', "does not end with a semicolon"),
        (f"{MODULE} required username;", "option 1 is not of the form"),
        (f"{MODULE} required username=;", "option 1 is not of the form"),
        (f"{MODULE} required a=b ==;", "option 2 is not of the form"),
        (f"{MODULE} required a=b c d=e;", "option 2 is not of the form"),
        (f'{MODULE} required a="b;', "quotation mark"),
        (f"{MODULE} required a=b a=c;", "the option a twice"),
        (f"{MODULE} required; {MODULE} required;", "use only one login module"),
    ],
)
def test_errors_do_not_contain_secrets(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
