"""Lines of a web server's access log: the same for the same seed, 100 MB in about a second.

Addresses, paths and user agents come from small pools, as in a real log, so the lines compress like
one. The request id at the end makes every line unique, so that lost, repeated and misplaced lines
are detected.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

_PAGES = ("/", "/feed", "/search?q={}", "/item/{}", "/user/{}/views", "/static/app.{}.js")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/7.88.1",
    "-",
)
_STATUSES = (200, 200, 200, 200, 200, 206, 301, 304, 404, 500)
_POOL = 4096
_START = datetime(2026, 11, 20, tzinfo=UTC)


def access_lines(seed: int = 2011) -> Iterator[bytes]:
    """Return an endless iterator of lines, each with its newline."""
    chance = random.Random(seed)
    heads = [f"10.{chance.randrange(64)}.{chance.randrange(256)}.9 - - [" for _ in range(_POOL)]
    tails = [_request(chance) for _ in range(_POOL)]
    for second in count():
        moment = (_START + timedelta(seconds=second)).strftime("%d/%b/%Y:%H:%M:%S +0000")
        for i in range(second * 1000, second * 1000 + 1000):
            # Different steps through the two pools make neighboring lines differ.
            line = f"{heads[i * 7 % _POOL]}{moment}{tails[i * 11 % _POOL]} {i:012d}\n"
            yield line.encode()


def write_access_log(path: Path, size_bytes: int, seed: int = 2011) -> int:
    """Write whole lines until `size_bytes` are reached; return the number of lines."""
    written = lines = 0
    with path.open("wb", buffering=1 << 20) as file:
        for line in access_lines(seed):
            if written >= size_bytes:
                break
            written += file.write(line)
            lines += 1
    return lines


def _request(chance: random.Random) -> str:
    page = chance.choice(_PAGES).format(chance.randrange(10**6))
    status, size = chance.choice(_STATUSES), chance.randrange(90_000)
    return f'] "GET {page} HTTP/1.1" {status} {size} "-" "{chance.choice(_AGENTS)}"'
