"""Format the subject of a certificate as Kafka does: ``CN=…,OU=…,O=…,C=…``.

The text is the name of a principal, which ACLs compare character by character, so it must be
identical to Java's: the format of RFC 2253, with the last part first, and with only the keywords of
that RFC.
Source: RFC 2253; OpenJDK X500Principal.getName, AVA.toRFC2253String.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE, _SET, _OBJECT_ID = 0x30, 0x31, 0x06
# UTF8String, PrintableString, TeletexString, IA5String, BMPString: Java decodes these as text.
_TEXT_CODECS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 30: "utf-16-be"}
_ESCAPED = ',=+<>#;"\\'


def rfc2253_name(der: bytes) -> str:
    """Return the text of an X.501 name in DER. Raises ValueError if it is not a name.

    >>> print(rfc2253_name(bytes.fromhex("300f310d300b06035504030c04612c2062")))
    CN=a\\, b
    """
    [(_, parts)] = _elements(der, _SEQUENCE)
    relative_names = [
        "+".join(_attribute(attribute) for _, attribute in _elements(part, _SEQUENCE))
        for _, part in _elements(parts, _SET)
    ]
    # RFC 2253, section 2.1: the text starts with the last name of the sequence.
    return ",".join(reversed(relative_names))


def _attribute(der: bytes) -> str:
    (tag, object_id), (value_tag, value) = _elements(der)
    if tag != _OBJECT_ID:
        raise ValueError("an attribute has no type")
    number = _object_id_text(object_id)
    keyword = _KEYWORDS.get(number)
    codec = _TEXT_CODECS.get(value_tag)
    if keyword is None or codec is None:
        # RFC 2253, section 2.4: an attribute without a keyword or text is written as its object
        # identifier and the hexadecimal form of its value.
        return f"{keyword or number}=#{_der(value_tag, value).hex()}"
    return f"{keyword}={_escape(value.decode(codec))}"


def _escape(text: str) -> str:
    """Escape special characters anywhere and spaces at either end, as in RFC 2253."""
    # OpenJDK's AVA also treats a carriage return as a space here.
    if not text.strip(" \r"):
        return "".join(f"\\{c}" for c in text)
    lead = sum(1 for _ in takewhile(lambda c: c in " \r", text))
    trail = sum(1 for _ in takewhile(lambda c: c in " \r", reversed(text)))
    middle = "".join(
        "\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c
        for c in text[lead : len(text) - trail]
    )
    ends = ("".join(f"\\{c}" for c in end) for end in (text[:lead], text[len(text) - trail :]))
    return middle.join(ends)


def _object_id_text(der: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in der:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    # X.690, section 8.19.4: the first two numbers are encoded as one, 40 * first + second.
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]] if numbers else []))


def _elements(der: bytes, expected_tag: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (tag, contents) of each consecutive DER element in `der`."""
    position = 0
    while position < len(der):
        tag, nbytes, start = _head(der, position)
        position = start + nbytes
        if position > len(der) or expected_tag not in (None, tag):
            raise ValueError("not an X.501 name")
        yield tag, der[start:position]


def _head(der: bytes, position: int) -> tuple[int, int, int]:
    """Return the tag and length of an element, and the position of its contents."""
    try:
        tag, nbytes = der[position], der[position + 1]
    except IndexError:
        raise ValueError("not an X.501 name") from None
    position += 2
    if nbytes >= 0x80:
        # X.690, section 8.1.3.5: the other bits are the number of bytes that contain the length.
        width = nbytes & 0x7F
        nbytes = int.from_bytes(der[position : position + width], "big")
        position += width
    return tag, nbytes, position


def _der(tag: int, value: bytes) -> bytes:
    if len(value) < 0x80:
        return bytes([tag, len(value)]) + value
    length = len(value).to_bytes((len(value).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + value
