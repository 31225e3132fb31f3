"""Documents of training graphs with equal layers, for rules by layers."""

from __future__ import annotations

from typing import Any


def layered(
    count: int,
    *,
    inner: tuple[int, ...] = (10, 10),
    boundary: int = 10,
    times: tuple[int, ...] = (1, 4, 2),
    unit: int = 1,
) -> dict[str, Any]:
    """Build `count` layers, each a row of forward tasks, of which the last one writes the boundary.

    Layer i's backward reads all that the layer has made in between, and its input. Sizes are multiples of `unit`.
    """
    values: list[dict[str, Any]] = [{"id": "x0", "size": boundary * unit}]
    tasks: list[dict[str, Any]] = []
    for layer in range(count):
        read = f"x{layer}"
        for place, (size, time) in enumerate(zip((*inner, boundary), times, strict=True)):
            write = f"x{layer + 1}" if place == len(inner) else f"v{layer}.{place}"
            values.append({"id": write, "size": size * unit})
            tasks.append(_task(f"h.{layer}.{place}", time, [read], [write], "forward"))
            read = write
    values += [{"id": f"d{layer}", "size": unit} for layer in range(count + 1)]
    tasks.append(_task("loss", 1, [f"x{count}"], [f"d{count}"], "loss"))
    for layer in reversed(range(count)):
        reads = [f"d{layer + 1}", f"x{layer}", *(f"v{layer}.{place}" for place in range(len(inner)))]
        tasks.append(_task(f"h.{layer}.back", 5, reads, [f"d{layer}"], "backward"))
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "inputs": ["x0"],
        "outputs": ["d0"],
        "values": values,
        "tasks": tasks,
    }


def _task(name: str, time: int, reads: list[str], writes: list[str], phase: str) -> dict[str, Any]:
    return {"id": name, "time": time, "reads": reads, "writes": writes, "phase": phase}
