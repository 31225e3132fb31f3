"""`remat.layout`: addresses for the residencies of a schedule in one memory, or for any buffers with lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.errors import OptionError, checked_call
from remat.graph.taskgraph import IntArray
from remat.instance.native import native
from remat.messages import brief, counted, unknown_memory
from remat.plugin.context import Context
from remat.plugin.layouts import FREE, Buffers, LayoutProposal, arena_of
from remat.plugin.options import make_options
from remat.plugin.proposal import Termination
from remat.plugin.registry import LAYOUT, find
from remat.schedule.addresses import AddressTable, Arena
from remat.solving.questions.in_place import stacked
from remat.solving.result import Result
from remat.units import LARGEST_SIZE
from remat.verifier.findings import Findings
from remat.verifier.layout import Placed, check_layout
from remat.verifier.residencies import Residencies, residencies_of

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.solving.verifying import Examined

DEFAULT = "layout-auto"


@dataclass(frozen=True, kw_only=True, repr=False)
class Addresses:
    """A verified layout of one memory.

    Attributes
    ----------
    memory : str
        Empty for buffers without a schedule.
    algorithm : str
    offset : (residencies,) int64, or None
        None if no layout was found.
    first, last, size : (residencies,) int64
    names : tuple of str
    arena : int or None
        The end of the highest residency.
    peak, rounded_peak : int
        Peak bytes, with exact sizes and with sizes rounded up to the alignment. For a schedule, both include the static
        bytes of the memory.
    bound : int
        No layout has a smaller arena.
    infeasible_within : str or None
        The class of layouts that all exceed the capacity.
    termination : Termination
    capacity : int or None
    alignment : int
    residencies : Residencies or None
        Residencies of the memory, for a schedule.
    table : AddressTable or None
        The rows of a schedule document, if a layout of a schedule was found.
    reserved : int or None
        For a simulated allocator: the peak bytes that it reserves from the device.
    notes : tuple of str
    """

    memory: str
    algorithm: str
    offset: IntArray | None
    first: IntArray
    last: IntArray
    size: IntArray
    names: tuple[str, ...]
    arena: int | None
    peak: int
    rounded_peak: int
    bound: int
    infeasible_within: str | None
    termination: Termination
    capacity: int | None
    alignment: int
    residencies: Residencies | None = None
    table: AddressTable | None = None
    reserved: int | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        arena = "no layout" if self.arena is None else f"arena {self.arena:,}"
        where = f" of {self.memory}" if self.memory else ""
        count = counted(len(self.size), "residency")
        return f"<Addresses{where}: {count}, {arena}, peak {self.peak:,}, by {self.algorithm}>"

    @property
    def fragmentation(self) -> float | None:
        """Arena over the peak of the rounded sizes, minus 1, with the highest residency's size rounded as well."""
        if self.arena is None or not self.rounded_peak:
            return None if self.arena is None else 0.0
        return -(-self.arena // self.alignment) * self.alignment / self.rounded_peak - 1

    def table_of(self, machine: Machine) -> AddressTable:
        """Return the address rows of the schedule.

        Raises
        ------
        OptionError
            If no layout was found, or it exceeds the capacity of the memory.
        """
        if self.table is None:
            why = "no layout was found" if self.memory else "buffers without a schedule have no residencies"
            raise OptionError(why, argument="layout")
        arena = self.table.arenas[0]
        capacity = machine.memories[arena.memory].capacity
        if capacity is not None and arena.size > capacity:
            raise OptionError(
                f"the arena takes {arena.size} bytes of {self.memory}, and its capacity is {capacity}; solve with a "
                "smaller budget, or with layout=True",
                argument="layout",
            )
        return self.table


@checked_call(OptionError)
def layout(
    source: Result | Examined | Buffers,
    *,
    memory: str | None = None,
    capacity: int | None = None,
    align: int = 1,
    reserved: tuple[tuple[int, int], ...] = (),
    fixed: Mapping[str, int] | None = None,
    algorithm: str = DEFAULT,
    options: Mapping[str, Any] | None = None,
    context: Context | None = None,
) -> Addresses:
    """Assign an address to each residency of a schedule in one memory.

    Parameters
    ----------
    source : Result, Examined or Buffers
        A solved or verified schedule, or buffers.
    memory : str, optional
        Default: the first processor's.
    capacity : int, optional
        Bytes of the arena; by default the arena is minimised.
    align : int
        A power of two that divides every address.
    reserved : tuple of (int, int)
        Half-open ranges of addresses to keep free, rounded outwards to the alignment. The static bytes come first.
    fixed : mapping of value to address, optional
        Prescribed addresses of all residencies of these values.
    algorithm : str
        An algorithm of kind ``layout``.
    options : mapping, optional
    context : Context, optional

    Returns
    -------
    Addresses

    Raises
    ------
    OptionError
        For invalid input: an alignment that is not a power of two, unknown names, addresses that collide.
    """
    align, capacity = _whole("align", align), None if capacity is None else _whole("capacity", capacity)
    reserved = _pairs(reserved)
    fixed = {name: _whole("fixed", offset) for name, offset in (fixed or {}).items()}
    buffers, held, name, static = _read(source, memory, growing=algorithm != "caching")
    buffers = _constrained(buffers, align, ((0, static), *reserved) if static else reserved, fixed)
    buffers = replace(buffers, capacity=buffers.capacity if capacity is None else capacity)
    search = _search_of(algorithm, options, context)
    buffers, found = _on_stacks(source, name, buffers, held, algorithm, search)
    first, last = (buffers.start, buffers.end) if held is None else (held.first, held.last)
    arena = table = None
    if found.offset is not None:
        arena = _checked(buffers, found.offset, (first, last), None if held is None else held.hosts, algorithm)
    if arena is not None and found.offset is not None and held is not None and not isinstance(source, Buffers):
        stated = buffers.alignment, tuple(reserved), tuple((fixed or {}).items())
        table = _table(source, name, held, found.offset, stated)
        arena = table.arenas[0].size
    peak, rounded_peak, bound, infeasible = _figures(source, name, held, buffers, found)
    return Addresses(
        memory=name,
        algorithm=algorithm,
        offset=found.offset,
        first=first,
        last=last,
        size=buffers.size,
        names=tuple(buffers.names) or _numbers(buffers),
        arena=arena,
        peak=peak,
        rounded_peak=rounded_peak,
        bound=bound,
        infeasible_within=infeasible,
        termination=found.termination,
        capacity=buffers.capacity,
        alignment=buffers.alignment,
        residencies=held,
        table=table,
        reserved=found.reserved,
        notes=found.notes,
    )


def _search_of(
    algorithm: str, options: Mapping[str, Any] | None, context: Context | None
) -> Callable[[Buffers], LayoutProposal]:
    """Return the algorithm with its options."""
    asked = find(algorithm, LAYOUT)
    chosen, within = make_options(asked, options or {}), context or Context()

    def search(buffers: Buffers) -> LayoutProposal:
        proposal: LayoutProposal = asked.load()(buffers, chosen, within)
        return proposal

    return search


def _on_stacks(
    source: Result | Examined | Buffers,
    memory: str,
    buffers: Buffers,
    held: Residencies | None,
    algorithm: str,
    search: Callable[[Buffers], LayoutProposal],
) -> tuple[Buffers, LayoutProposal]:
    """Search; where the arena exceeds the peak, also with outputs in place on several inputs; return the better one.

    The blocks of the caching allocator, and fixed addresses, leave no choice.
    """
    found = search(buffers)
    if held is None or isinstance(source, Buffers) or not len(held.hosts):
        return buffers, found
    if algorithm == "caching" or buffers.fixed is not None:
        return buffers, found
    assert source.report is not None
    peak = source.report.peaks[memory].size
    arena = None if found.offset is None else arena_of(buffers, found.offset)
    if arena is not None and arena <= max(peak, buffers.capacity or 0):
        return buffers, found
    stacks = stacked(held, buffers.rounded)
    if stacks is None:
        return buffers, found
    start, end, group, shift = stacks
    other = replace(buffers, start=start, end=end, group=group, shift=shift)
    better = search(other)
    if better.offset is None or (arena is not None and arena <= arena_of(other, better.offset)):
        return buffers, found
    return other, better


def _whole(argument: str, value: Any) -> int:
    plain = native(value)
    if isinstance(plain, bool) or not isinstance(plain, int) or abs(plain) > LARGEST_SIZE:
        raise OptionError(f"expected a whole number, not {brief(value)}", argument=argument)
    return plain


def _pairs(reserved: Any) -> tuple[tuple[int, int], ...]:
    plain = native(reserved)
    listed = plain if isinstance(plain, list) else [plain]
    for pair in listed:
        if not isinstance(pair, list) or len(pair) != 2:
            raise OptionError(f"expected pairs of addresses, not {brief(pair)}", argument="reserved")
    return tuple((_whole("reserved", begin), _whole("reserved", end)) for begin, end in listed)


def _table(
    source: Result | Examined,
    memory: str,
    held: Residencies,
    offset: IntArray,
    stated: tuple[int, tuple[tuple[int, int], ...], tuple[tuple[str, int], ...]],
) -> AddressTable:
    """Return the rows of a schedule document; the arena includes the static bytes."""
    steps = source.columns if isinstance(source, Result) else source.steps
    assert steps is not None
    index = source.machine.memory_index[memory]
    size = max(int((offset + held.size).max(initial=0)), source.graph.static_bytes(source.machine, index))
    return AddressTable(
        (Arena(memory=index, size=size, alignment=stated[0], reserved=stated[1], fixed=stated[2]),),
        memory=held.memory,
        value=held.value,
        task=held.tasks(steps),
        first=held.first_step,
        last=held.last_step,
        offset=offset,
        size=held.size,
    )


def _numbers(buffers: Buffers) -> tuple[str, ...]:
    return tuple(map(str, range(len(buffers))))


def _checked(
    buffers: Buffers, offset: IntArray, life: tuple[IntArray, IntArray], hosts: IntArray | None, algorithm: str
) -> int:
    """Return the arena that the verifier measures; an invalid layout is a bug of the algorithm."""
    from remat.errors import ClaimError

    placed = Placed(
        first=life[0],
        last=life[1],
        size=buffers.size,
        offset=offset,
        names=tuple(buffers.names) or _numbers(buffers),
        hosts=hosts,
        arena=None if algorithm == "caching" else buffers.capacity,
        alignment=buffers.alignment,
        fixed=buffers.fixed,
        reserved=buffers.reserved,
    )
    findings = Findings()
    arena = check_layout(placed, findings)
    if findings or arena != arena_of(buffers, offset):
        raise ClaimError(f"{algorithm}: {next(iter(findings.sorted()), 'the arena differs')}")
    return arena


def _peak(buffers: Buffers, size: IntArray) -> int:
    if not len(buffers):
        return 0
    time = np.concatenate((buffers.end, buffers.start))
    change = np.concatenate((-size, size))
    return int(np.cumsum(change[np.lexsort((change > 0, time))]).max())


def _figures(
    source: Result | Examined | Buffers, memory: str, held: Residencies | None, buffers: Buffers, found: LayoutProposal
) -> tuple[int, int, int, str | None]:
    """Return the peak, the rounded peak, the bound, and the class of layouts that all exceed the capacity."""
    rounded = _peak(buffers, buffers.rounded)
    if isinstance(source, Buffers) or held is None:
        return _peak(buffers, buffers.size), rounded, found.bound, found.infeasible_within
    assert source.report is not None
    peak, align = source.report.peaks[memory].size, buffers.alignment
    static = source.graph.static_bytes(source.machine, source.machine.memory_index[memory])
    rounded = peak if align == 1 else max(peak, -(-static // align) * align + rounded)
    if not len(held.hosts):
        return peak, rounded, found.bound, found.infeasible_within
    # The algorithm's bound is valid only for the pairs of output and input that `shared` has chosen.
    exceeded = buffers.capacity is not None and peak > buffers.capacity
    return peak, rounded, peak, found.infeasible_within if exceeded else None


def _read(
    source: Result | Examined | Buffers, memory: str | None, *, growing: bool
) -> tuple[Buffers, Residencies | None, str, int]:
    """Return the buffers of one memory, their residencies, its name, and its static bytes."""
    if isinstance(source, Buffers):
        return source, None, "", 0
    if not all(hasattr(source, name) for name in ("graph", "machine", "report")):
        raise OptionError(f"expected a Result, an Examined or Buffers, not {brief(source)}", argument="source")
    columns = source.columns if isinstance(source, Result) else source.steps
    if columns is None or source.report is None or not source.report.ok:
        raise OptionError("there is no valid schedule to lay out", argument="source")
    if source.report.steady is not None:
        raise OptionError("a schedule that repeats itself without end has no addresses", argument="source")
    graph, machine = source.graph, source.machine
    if memory is not None and memory not in machine.memory_index:
        raise OptionError(unknown_memory(memory, machine.memory_index), argument="memory")
    index = machine.processors[0].memory if memory is None else machine.memory_index[memory]
    every = residencies_of(graph, machine, columns)
    rows = every.of_memory(index)
    held = every.at(rows)
    names = held.names(graph, columns)
    start, end, group = shared(held, growing=growing)
    shift = None if group is None else np.zeros(len(held), dtype=np.int64)
    buffers = Buffers(start, end, held.size, group=group, shift=shift, names=names)
    return buffers, held, machine.memories[index].name, graph.static_bytes(machine, index)


def _constrained(
    buffers: Buffers, align: int, reserved: tuple[tuple[int, int], ...], fixed: Mapping[str, int]
) -> Buffers:
    """Add the constraints on addresses."""
    at = np.full(len(buffers), FREE, dtype=np.int64) if buffers.fixed is None else buffers.fixed.copy()
    for name, offset in fixed.items():
        mine = [row for row in range(len(buffers)) if buffers.name(row) == name]
        if not mine:
            raise OptionError(f"{name!r} is not one of the buffers", argument="fixed")
        at[mine] = offset
    return replace(
        buffers,
        alignment=max(align, buffers.alignment) if align >= 1 else align,
        fixed=at if (at != FREE).any() else None,
        reserved=(*buffers.reserved, *reserved),
    )


def shared(held: Residencies, *, growing: bool = True) -> tuple[IntArray, IntArray, IntArray | None]:
    """Return lifetimes, and groups in which an in-place output shares the address of an input of its run.

    Each output takes at most one host, largest first; if `growing`, the host may be smaller. During the run only the
    larger of the two counts, so their lifetimes do not overlap.
    """
    if not len(held.hosts):
        return held.first, held.last, None
    start, end, group = held.first.copy(), held.last.copy(), np.arange(len(held), dtype=np.int64)
    size = held.size.tolist()
    taken: set[int] = set()
    for guest, host in sorted(held.hosts.tolist(), key=lambda pair: (-size[pair[1]], -size[pair[0]], pair)):
        if host in taken or group[guest] != guest or (size[guest] > size[host] and not growing):
            continue
        taken.add(host)
        group[guest] = host
        if size[guest] <= size[host]:
            start[guest] = end[host]
        else:
            end[host] = start[guest]
        if start[guest] >= end[guest] or start[host] >= end[host]:  # one lives during the run only
            start[guest], end[host] = held.first[guest], held.last[host]
            group[guest] = guest
            taken.discard(host)
    while True:
        above = group[group]
        if (above == group).all():
            return start, end, group
        group = above
