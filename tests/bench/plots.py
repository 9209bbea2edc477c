"""The plots of docs/performance.md: the paper's Figures 4 and 5, and all CPU ratios."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from tests.bench.loads import CPU_LOADS
from tests.bench.report import PAPER_PEERS
from tests.bench.results import Run
from tests.bench.rounds import spread, values_of

_LABELS = {"plog": "plog", "kafka": "Kafka", "rabbitmq": "RabbitMQ", "activemq": "ActiveMQ"}
_COLOURS = {"plog": "C0", "kafka": "C1", "rabbitmq": "C2", "activemq": "C3"}
_DPI = 120


def draw(run: Run, folder: Path) -> None:
    """Write performance-*.png for the figures that the run has."""
    if run.counted("paper"):
        _bars(
            run,
            "Figure 4: producer, 200-byte messages",
            [
                ("in1.msgs_s", "batch 1", PAPER_PEERS),
                ("in50.msgs_s", "batch 50", ("plog", "kafka")),
            ],
            folder / "performance-producer.png",
        )
        _bars(
            run,
            "Figure 5: consumer, 200-byte messages",
            [
                ("out1.msgs_s", "written one by one", PAPER_PEERS),
                ("out50.msgs_s", "written in batches of 50", ("plog", "kafka")),
            ],
            folder / "performance-consumer.png",
        )
    _ratios(run, folder / "performance-cpu.png")


def _bars(run: Run, title: str, groups: list[tuple[str, str, tuple[str, ...]]], path: Path) -> None:
    rounds = run.counted("paper")
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    ticks, position = [], 0
    for name, what, peers in groups:
        for peer in peers:
            values = [round_[peer][name] for round_ in rounds if name in round_.get(peer, {})]
            if not values:
                continue
            bar = axes.bar(position, median(values), color=_COLOURS[peer])
            axes.bar_label(bar, fmt="{:,.0f}", fontsize=8)
            ticks.append((position, f"{_LABELS[peer]}\n{what}"))
            position += 1
    axes.set_yscale("log")
    axes.set_ylabel("messages/s (log scale)")
    axes.set_title(title)
    axes.set_xticks([x for x, _ in ticks], [text for _, text in ticks], fontsize=7)
    axes.margins(y=0.15)
    figure.savefig(path, dpi=_DPI)


def _ratios(run: Run, path: Path) -> None:
    """Draw a bar for each load's first target, its range, and a mark at the bound."""
    rows = []
    for load in CPU_LOADS:
        target = load.targets[0]
        found = spread(values_of(target, run.counted(load.name), target.subject))
        if found is not None and target.at_most is not None:
            rows.append((load.what.partition(" (")[0], found, target.at_most))
    if not rows:
        return
    figure = Figure(figsize=(8, 0.32 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for y, (_, found, at_most) in enumerate(rows):
        colour = "C0" if found.middle <= at_most else "C3"
        around = [[found.middle - found.least], [found.greatest - found.middle]]
        axes.barh(y, found.middle, color=colour, xerr=around, capsize=2, ecolor="0.4")
        axes.plot([at_most, at_most], [y - 0.42, y + 0.42], color="black", linewidth=2)
    axes.axvline(1, color="0.7", linestyle=":")
    axes.set_yticks(range(len(rows)), [what for what, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("plog's broker CPU ÷ Kafka's, neither syncing; | is the target")
    figure.savefig(path, dpi=_DPI)
