"""X.500 names in Java's format; each expected text was produced by Java from the same bytes."""

from __future__ import annotations

import pytest

from plogd.net.tls.x500_name import rfc2253_name

JAVA_SAYS = {
    "3000": "",
    "300e310c300a06035504031303707274": "CN=prt",
    "300e310c300a06035504030c03202020": "CN=\\ \\ \\ ",
    "300e310c300a06035504030c03610062": "CN=a\\00b",
    "302631183008060355040b0c0162300c06035504030c056d756c7469310a3008060355040a0c017a": (
        "O=z,OU=b+CN=multi"
    ),
    "3024310c300a060355040513033132333114301206035504030c0b2368617368206669727374": (
        "CN=\\#hash first,2.5.4.5=#1303313233"
    ),
    "305b3114301206092a864886f70d01090116056140622e63310a300806035504030c017831143012060a099226"
    "8993f22c6401010c047569643131133011060a0992268993f22c6401191603636f6d310c300a06035504090c03"
    "732031": ("STREET=s 1,DC=com,UID=uid1,CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
    "307e310b30090603550406130244453110300e06035504080c07426176617269613111300f06035504070c084dc3bc"
    "6e6368656e311e301c060355040a0c1545782c2022496e6322203c613e3b23313d322b335c31193017060355040b0c"
    "10206c65616420616e6420747261696c20310f300d06035504030c06636c69656e74": (
        'CN=client,OU=\\ lead and trail\\ ,O=Ex\\, \\"Inc\\" \\<a\\>\\;\\#1\\=2\\+3\\\\,L=München,'
        "ST=Bavaria,C=DE"
    ),
}


@pytest.mark.parametrize("der", JAVA_SAYS)
def test_name_has_javas_format(der: str) -> None:
    assert rfc2253_name(bytes.fromhex(der)) == JAVA_SAYS[der]


def test_long_value_keeps_its_length_in_hex() -> None:
    der = bytes.fromhex("3081d33181d03081cd06032a03040c81c5") + b"y" * 197
    assert rfc2253_name(der) == "1.2.3.4=#0c81c5" + "79" * 197


@pytest.mark.parametrize("der", ["30", "3002", "310a", "300e310c300a06035504031303", ""])
def test_invalid_name_is_rejected(der: str) -> None:
    with pytest.raises(ValueError):
        rfc2253_name(bytes.fromhex(der))
