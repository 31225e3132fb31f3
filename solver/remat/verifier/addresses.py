"""Check that each address belongs to a residency of the schedule and is legal."""

from __future__ import annotations

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.schedule.addresses import NONE, AddressTable, Arena
from remat.schedule.steps import Steps
from remat.verifier.findings import Findings
from remat.verifier.layout import Placed, check_layout
from remat.verifier.report import Violation
from remat.verifier.residencies import Residencies, residencies_of

UNPLACED = -1


def check_addresses(
    graph: TaskGraph, machine: Machine, steps: Steps, table: AddressTable
) -> tuple[tuple[Violation, ...], dict[str, int]]:
    """Check the addresses of a schedule that passed all other checks.

    Parameters
    ----------
    graph, machine
    steps : Steps
        With start times.
    table : AddressTable

    Returns
    -------
    tuple of Violation
        Violations of the rules ``address-missing``, ``address-unknown``, ``address-range`` and ``address-overlap``.
    mapping of memory name to bytes
        The verified arena of each memory with addresses: the end of its highest residency or of its static bytes.
    """
    findings = Findings()
    held = residencies_of(graph, machine, steps)
    names = held.names(graph, steps)
    offset = _matched(held, names, steps, table, machine, findings)
    arenas = {}
    for arena in table.arenas:
        static = graph.static_bytes(machine, arena.memory)
        rows = held.of_memory(arena.memory)
        rows = rows[offset[rows] != UNPLACED]
        used = _check_arena(held.at(rows), offset[rows], [names[row] for row in rows.tolist()], arena, static, findings)
        _check_size(arena, machine, static, findings)
        arenas[machine.memories[arena.memory].name] = max(used, static)
    return findings.sorted(), arenas


def _matched(
    held: Residencies, names: list[str], steps: Steps, table: AddressTable, machine: Machine, findings: Findings
) -> IntArray:
    """Return the address of each residency (`UNPLACED` without one); report rows that match no residency."""
    columns = (held.memory, held.value, held.tasks(steps), held.first_step, held.last_step)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    offset = np.full(len(held), UNPLACED, dtype=np.int64)
    listed = zip(*(column.tolist() for column in table.columns), strict=True)
    for number, (memory, value, task_, first, last, address, size) in enumerate(listed):
        row = row_of.get((memory, value, task_, first, last))
        step = None if first == NONE else first
        if row is None:
            findings.add(step, "address-unknown", f"addresses[{number}] belongs to no residency of the schedule")
        elif offset[row] != UNPLACED:
            findings.add(step, "address-unknown", f"{names[row]} has a second address in addresses[{number}]")
        else:
            offset[row] = address
            if size != held.size[row]:
                text = f"{names[row]} has {held.size[row]} bytes, and not {size} as addresses[{number}] states"
                findings.add(step, "address-range", text)
    laid_out = np.isin(held.memory, [arena.memory for arena in table.arenas])
    for row in np.flatnonzero(laid_out & (offset == UNPLACED)).tolist():
        first = int(held.first_step[row])
        where = machine.memories[int(held.memory[row])].name
        text = f"{names[row]} has no address in {where} from {_shown(first)}"
        findings.add(None if first == NONE else first, "address-missing", text)
    return offset


def _shown(step: int) -> str:
    return "the start" if step == NONE else f"step {step}"


def _check_arena(
    held: Residencies, offset: IntArray, names: list[str], arena: Arena, static: int, findings: Findings
) -> int:
    """Check the residencies of one memory; return where the highest one ends."""
    at = dict(arena.fixed)
    for name in at.keys() - set(names):
        findings.add(None, "address-unknown", f"{name} is fixed at {at[name]}, and is never there")
    placed = Placed(
        first=held.first,
        last=held.last,
        size=held.size,
        offset=offset,
        names=names,
        hosts=held.hosts,
        arena=arena.size,
        alignment=arena.alignment,
        fixed=np.array([at.get(name, -1) for name in names], dtype=np.int64) if at else None,
        reserved=((0, static), *arena.reserved) if static else arena.reserved,
    )
    return check_layout(placed, findings, held.first_step)


def _check_size(arena: Arena, machine: Machine, static: int, findings: Findings) -> None:
    memory = machine.memories[arena.memory]
    if memory.capacity is not None and arena.size > memory.capacity:
        text = f"the arena of {memory.name} has {arena.size} bytes, and the memory {memory.capacity}"
        findings.add(None, "address-range", text)
    if static > arena.size:
        text = f"the arena of {memory.name} has {arena.size} bytes, and its static bytes take {static}"
        findings.add(None, "address-range", text)
