"""Find cycles in a graph of imports."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping


def cycles_of(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return cycles without a common module, until removing their modules leaves no cycle."""
    rest = {name: set(imported) for name, imported in graph.items()}
    found = []
    while rest:
        leaves = {name for name, imported in rest.items() if not imported & rest.keys()}
        if not leaves:
            loops = (_shortest_loop(name, rest) for name in sorted(rest))
            found.append(min((loop for loop in loops if loop), key=len))
            leaves = set(found[-1])
        for name in leaves:
            del rest[name]
    return found


def _shortest_loop(start: str, graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return a path from `start` back to itself; empty without a cycle."""
    came_from: dict[str, str] = {}
    reached = deque([start])
    while reached:
        name = reached.popleft()
        for imported in sorted(graph[name]):
            if imported == start:
                loop = [name]
                while loop[-1] != start:
                    loop.append(came_from[loop[-1]])
                return loop[::-1]
            if imported in graph and imported not in came_from:
                came_from[imported] = name
                reached.append(imported)
    return []
