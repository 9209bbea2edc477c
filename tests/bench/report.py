"""The report: the targets, the measured figures, and whether they meet the targets.

`write` puts tables between the markers of docs/performance.md, ``<!-- bench:NAME -->`` to
``<!-- /bench:NAME -->``, and leaves the rest unchanged; plots.py draws the plots. All numbers come
from a results file, so users can write the report of their own run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.headlines import HEADLINES
from tests.bench.load import Load
from tests.bench.loads import LOADS
from tests.bench.results import Run
from tests.bench.rounds import Round, Spread, Target, figure, spread, values_of

_HEAD = ("load", "figure", "target", "median", "minimum – maximum (rounds)", "")
_ABSOLUTE = (
    (
        "broker_cpu_s_per_gb",
        "{:.2f} s/GB",
    ),  # Must be first: `defaults_table` omits it for some loads.
    ("broker_us_per_request", "{:.1f} µs/request"),
    ("broker_us_per_poll", "{:.1f} µs/poll"),
    ("broker_cpu_pct", "{:.2f} % of a core"),
    ("until_written_s", "{:.2f} s"),
)
_NAMES = {"plog": "plog without syncs", "kafka": "Kafka", "plog-default": "plog, default settings"}
PAPER_ROWS = (
    ("producer, batch 1, messages/s", "in1.msgs_s", "{:,.0f}"),
    ("producer, batch 50, messages/s", "in50.msgs_s", "{:,.0f}"),
    ("producer, batch 1, broker CPU µs per message", "in1.broker_cpu_s_per_mmsg", "{:.1f}"),
    ("consumer, messages/s", "out50.msgs_s", "{:,.0f}"),
    ("consumer of a log written at batch 1, messages/s", "out1.msgs_s", "{:,.0f}"),
    ("the same, broker CPU µs per message", "out1.broker_cpu_s_per_mmsg", "{:.2f}"),
)
PAPER_PEERS = ("plog", "kafka", "rabbitmq", "activemq")


def write(run: Run, docs: Path) -> None:
    """Update docs/performance.md and its plots."""
    from tests.bench import plots  # Imported here, because importing matplotlib takes a second.

    path = docs / "performance.md"
    path.write_text(with_tables(path.read_text(), tables(run)))
    plots.draw(run, docs)


def with_tables(text: str, tables: dict[str, str]) -> str:
    r"""Return `text` with the text between each pair of markers replaced.

    >>> with_tables("a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb", {"x": "new"})
    'a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb'
    """
    for name, table in tables.items():
        begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"cannot update the table: the markers of {name} are missing")
        whole = f"{begin}\n{table}\n{end}"
        text = pattern.sub(lambda _, whole=whole: whole, text)  # type: ignore[misc]
    return text


def tables(run: Run) -> dict[str, str]:
    """Return all tables of the document by the names of their markers."""
    by_section = {
        section: targets_table(run, [load for load in LOADS if load.section == section])
        for section in ("cpu", "other", "paper", "clients", "spark", "cluster")
    }
    return {
        "machine": machine_text(run),
        **by_section,
        "defaults": defaults_table(run),
        "figures": paper_table(run),
        "headlines": headlines_table(run),
        "times": times_table(run),
    }


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def targets_table(run: Run, loads: Iterable[Load]) -> str:
    """Return a table with one row for each target of the loads."""
    return markdown(_HEAD, (row for load in loads for row in _target_rows(run, load)))


def _target_rows(run: Run, load: Load) -> Iterable[tuple[str, ...]]:
    rounds = run.counted(load.name)
    what = load.what
    for target in load.targets:
        found = spread(values_of(target, rounds, target.subject))
        if found is None:
            why = run.failed.get(load.name, "not run")
            yield what, target.what, target.bound, "–", why.partition("\n")[0], ""
        else:
            middle = _number(found.middle) + target.unit
            doubt = ", all noisy" if run.is_doubtful(load.name) else ""
            range_ = f"{_range(found)} ({found.count}{doubt})"
            yield what, target.what, target.bound, middle, range_, _verdict(target, found)
        what = ""


def _verdict(target: Target, found: Spread) -> str:
    if not target.bound:
        return ""
    return "met" if target.is_met(found.middle) else "**MISSED**"


def _number(value: float) -> str:
    """
    >>> [_number(x) for x in (0.0123, 0.35, 3.456, 61.23, 2011.4)]
    ['0.012', '0.35', '3.46', '61.2', '2,011']
    """
    if abs(value) < 0.1:
        return f"{value:.3f}"
    if abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def _range(found: Spread) -> str:
    return f"{_number(found.least)} – {_number(found.greatest)}"


def defaults_table(run: Run) -> str:
    """Return a table of the absolute figures, and of plog and Kafka with their defaults."""
    rows = []
    for load in LOADS:
        rounds = run.counted(load.name)
        for name, text in _ABSOLUTE[load.is_of_requests :]:
            cells = [_with_system(rounds, peer, name, text) for peer in _NAMES]
            if any(cells):
                rows.append((load.what, *cells, _default_ratio(load, run)))
                break
    return markdown(("load", *_NAMES.values(), "plog ÷ Kafka, defaults"), rows)


def _with_system(rounds: Sequence[Round], peer: str, name: str, text: str) -> str:
    """Return the median and the kernel's share of the CPU."""
    middle = _median(rounds, peer, name, text)
    if not middle or not name.startswith("broker") or name == "broker_cpu_pct":
        return middle
    shares = [
        round_[peer]["broker_sys_s"] / round_[peer]["broker_cpu_s"]
        for round_ in rounds
        if round_.get(peer, {}).get("broker_cpu_s")
    ]
    found = spread(shares)
    return f"{middle} ({100 * found.middle:.0f} % system)" if found else middle


def _median(rounds: Sequence[Round], peer: str, name: str, text: str) -> str:
    found = spread(values_of(Target(what="", of=figure(name)), rounds, peer))
    return text.format(found.middle) if found else ""


def _default_ratio(load: Load, run: Run) -> str:
    target = load.targets[0]
    if not target.reported:
        return ""
    found = spread(values_of(target, run.counted(load.name), target.reported))
    return _number(found.middle) if found else ""


def paper_table(run: Run) -> str:
    """Return a table of the numbers in the two plots."""
    rounds = run.counted("paper")
    rows = [
        (what, *(_median(rounds, peer, name, text) or "–" for peer in PAPER_PEERS))
        for what, name, text in PAPER_ROWS
    ]
    return markdown(("", *(run.versions.get(peer, peer) for peer in PAPER_PEERS)), rows)


def headlines_table(run: Run) -> str:
    """Return a table of the claims and plog's figures."""
    rows = [
        (headline.claim, "; ".join(part.render(run) for part in headline.parts))
        for headline in HEADLINES
    ]
    return markdown(("claim about Kafka", "plog on this machine"), rows)


def times_table(run: Run) -> str:
    """Return a table of the duration of each load."""
    rows = []
    for load in LOADS:
        if load.name in run.seconds:
            rounds = len(run.rounds.get(load.name, []))
            away = run.noisy(load.name)
            rows.append((load.name, f"{run.seconds[load.name]:.0f} s", str(rounds), str(away)))
    whole = f"{sum(run.seconds.values()) / 60:.0f} min"
    return markdown(("load", "duration", "rounds", "discarded"), [*rows, ("all", whole, "", "")])


def machine_text(run: Run) -> str:
    """Return a description of the machine and the brokers in two lines."""
    about = run.about
    if not about:
        return "Not measured yet."
    versions = [version for name, version in run.versions.items() if name != "disk"]
    quick = " **With --quick: one small round each, no figure counts.**" if about["quick"] else ""
    absent = [f"{name} was not there ({why})" for name, why in run.missing.items()]
    return (
        f"{about['date']}: {about['cpus']} CPUs ({about['cpu']}), {about['memory_gb']} GB,"
        f" Linux {about['kernel']}, Python {about['python']}.{quick}\n"
        f"{'; '.join([*dict.fromkeys(versions), *absent])}."
    )


def summary(run: Run) -> str:
    """Return the targets and verdicts as text for the terminal."""
    lines = []
    for load in LOADS:
        if load.name in run.rounds or load.name in run.failed:
            for row in _target_rows(run, load):
                what = row[0] and f"{load.name}: {row[0]}"
                lines.append(f"{what}\n" if what else "")
                lines.append(f"    {row[1]}: {row[3]} ({row[4]}) {row[2]} {row[5]}\n")
    return "".join(lines)
