"""Check orders before placement: each operation occurs exactly once, and no operations deadlock (rule `deadlock`).

The check is independent of placement and uses no times. An operation follows its predecessor on the same device and
the producers of its inputs; a recomputation follows the reads of other devices in its memory. If these precedences have
a cycle, no start times can satisfy them. Blocking transfers take part too: they stand among the operations of their
sender, or of both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from remat.graph.taskgraph import IntArray, Ragged, TaskGraph
from remat.schedule.orders import Orders, Pass, Phase, PipelineTasks
from remat.verifier.findings import Findings
from remat.verifier.report import Violation

MOST_SHOWN = 12


def check_orders(
    graph: TaskGraph,
    tasks: PipelineTasks,
    orders: Orders,
    devices: Sequence[str],
    copies: int,
    *,
    memories: Sequence[int],
    transfers: str = "overlap",
) -> tuple[Violation, ...]:
    """Check the orders of a pipeline.

    Parameters
    ----------
    graph : TaskGraph
    tasks : PipelineTasks
        Maps operations to tasks.
    orders : Orders
    devices : sequence of str
        Names of the processors, for the messages.
    copies : int
        Maximum number of devices that hold a layer at the same time.
    memories : sequence of int
        The memory of each processor.
    transfers : str
        Which devices a transfer blocks: see `transfers` of a cluster.

    Returns
    -------
    tuple of Violation
        Rules `bad-step` (missing or duplicate operations, halves that the layers do not have),
        `initial-placement` (a layer on too many devices) and `deadlock`; empty if the orders can be run.

    Notes
    -----
    O(operations + accesses).
    """
    findings = Findings()
    _check_places(tasks, orders, devices, copies, findings)
    _check_pairs(orders, findings)
    _check_again(orders, transfers, findings)
    _check_complete(graph, tasks, orders, findings)
    if not findings:
        _Waits(graph, tasks, orders, devices, memories).check(transfers, findings)
    return findings.sorted()


def _check_places(
    tasks: PipelineTasks, orders: Orders, devices: Sequence[str], copies: int, findings: Findings
) -> None:
    homes: dict[int, set[int]] = {}
    for stage in orders.stages:
        for layer in stage.layers:
            homes.setdefault(layer, set()).add(stage.device)
    _check_groups(orders, devices, findings)
    for layer in range(tasks.layers):
        where = homes.get(layer, set())
        if len(where) > copies:
            names = ", ".join(devices[device] for device in sorted(where))
            message = f"layer {layer + 1} is on {len(where)} devices ({names}); `copies` allows {copies}"
            findings.add(None, "initial-placement", message)
        elif not where:
            findings.add(None, "initial-placement", f"layer {layer + 1} is in no stage")


def _check_groups(orders: Orders, devices: Sequence[str], findings: Findings) -> None:
    """Check that devices that run a stage together run only operations of their group."""
    groups = {stage.devices for stage in orders.stages}
    of: dict[int, range] = {}
    for group in sorted(groups, key=lambda one: (-len(one), one.start)):
        for device in group:
            other = of.setdefault(device, group)
            if other != group and device < len(devices):
                first, last = devices[other[0]], devices[min(other[-1], len(devices) - 1)]
                mine = "a stage alone" if len(group) == 1 else f"a stage with those from {devices[group[0]]} on"
                message = f"{devices[device]} runs {mine}, and one together with {first} to {last}"
                findings.add(None, "initial-placement", message)


def _check_pairs(orders: Orders, findings: Findings) -> None:
    """Check that each pair of simultaneous operations is a forward followed by a backward."""
    _, phase, stage, batch = orders.columns.tolist()
    for unit in orders.units.to_lists():
        if len(unit) > 1:
            one, *others = (Pass(Phase(phase[k]), stage[k], batch[k]) for k in unit)
            if any(_is_recomputed(orders, other.stage, other.batch) for other in others):
                named = "&".join(map(str, (one, *others)))
                findings.add(
                    None, "bad-step", f"{named}: a backward that recomputes cannot run simultaneously with a forward"
                )
            if len(others) > 1 or one.phase is not Phase.F or others[0].phase not in (Phase.B, Phase.BW):
                named = "&".join(map(str, (one, *others)))
                findings.add(None, "bad-step", f"{named}: only a forward and a backward can run simultaneously")


def _is_recomputed(orders: Orders, stage: int, batch: int) -> bool:
    return any(one.batches is None or batch in one.batches for one in orders.stages[stage].recompute)


def _check_again(orders: Orders, transfers: str, findings: Findings) -> None:
    """Check early recomputations: one each, between forward and backward, with something to recompute."""
    if transfers != "overlap" and orders.ahead:
        stage, batch = min(orders.ahead)
        message = (
            f"R{stage}.{batch}: early recomputation is not allowed with transfers that block devices ({transfers})"
        )
        findings.add(None, "bad-step", message)
    for listed in orders.lists:
        if not any(operation.phase is Phase.R for operation in listed):
            continue
        at: dict[Pass, int] = {}
        for number, operation in enumerate(listed):
            own = Phase.B if operation.phase is Phase.BW else operation.phase
            if operation.phase is Phase.R and operation in at:
                findings.add(None, "bad-step", f"{operation} is listed twice")
            at[Pass(own, operation.stage, operation.batch)] = number
        for phase, stage, batch in [one for one in at if one.phase is Phase.R]:
            name = f"{phase.name}{stage}.{batch}"
            ends = at.get(Pass(Phase.F, stage, batch)), at.get(Pass(Phase.B, stage, batch))
            if not _is_recomputed(orders, stage, batch):
                findings.add(None, "bad-step", f"{name}: stage {stage} does not recompute micro-batch {batch}")
            elif None not in ends and not ends[0] < at[Pass(phase, stage, batch)] < ends[1]:  # type: ignore[operator]
                findings.add(None, "bad-step", f"{name} must be between F{stage}.{batch} and its backward")


def _check_complete(graph: TaskGraph, tasks: PipelineTasks, orders: Orders, findings: Findings) -> None:
    """Check that every task runs once, and that each operation exists for its layers."""
    _, phase, stage, _ = orders.columns
    codes, first = np.unique(stage * len(Phase) + phase, return_index=True)
    for code, number in zip(codes.tolist(), first.tolist(), strict=True):
        own, kind = divmod(code, len(Phase))
        if kind in (Phase.W, Phase.BW) and not tasks.of(Pass(Phase.W, own, 0), orders.stages[own]):
            name = f"{Phase(kind).name}{own}.{int(orders.columns[3][number])}"
            message = f"{name}: no layer of stage {own} has a backward in two halves (`weight_time`)"
            findings.add(None, "bad-step", message)
    every = tasks.of_all(orders)
    count = np.bincount(every.items, minlength=len(graph.tasks))
    if any(own.recompute for own in orders.stages):
        # Forwards of layers that are recomputed come again; of these, those among forwards are counted.
        first = np.flatnonzero((orders.columns[1] == Phase.F)[every.rows])
        again = np.flatnonzero((orders.columns[1] != Phase.F)[every.rows] & graph.recomputable[every.items])
        count = np.bincount(every.items[first], minlength=len(graph.tasks))
        count += np.bincount(np.delete(every.items, np.concatenate((first, again))), minlength=len(graph.tasks))
    for task in np.flatnonzero(count > 1).tolist():
        findings.add(None, "bad-step", f"{graph.described(task)} is run by {count[task]} operations")
    for task in np.flatnonzero(count == 0).tolist():
        findings.add(None, "required-missing", f"no operation runs {graph.described(task)}")


class _Waits:
    """Precedence graph of the operations that a device runs as one, and optionally of blocking transfers."""

    def __init__(
        self, graph: TaskGraph, tasks: PipelineTasks, orders: Orders, devices: Sequence[str], memories: Sequence[int]
    ) -> None:
        self.graph, self.orders, self.devices = graph, orders, devices
        parts, units = tasks.of_all(orders), orders.units
        self.device = orders.columns[0, units.start[:-1]]
        owner = np.full(len(graph.tasks), -1, dtype=np.int64)
        owner[parts.items] = parts.rows
        # Readers of a forward's output wait for its first run; recomputations serve only their own device.
        forwards = (orders.columns[1] == Phase.F)[parts.rows]
        owner[parts.items[forwards]] = parts.rows[forwards]
        maker = np.full(len(graph.values), -1, dtype=np.int64)
        maker[graph.writes.items] = owner[graph.writes.rows]
        reads = graph.reads.gather(parts.items)
        reader, wanted = parts.rows[reads.rows], maker[reads.items]
        real = (wanted >= 0) & (wanted != reader)
        # Operations of a pair cannot wait for each other, so a unit never waits for itself.
        self.reader, self.maker = units.rows[reader[real]], units.rows[wanted[real]]
        self.value = reads.items[real]
        memory = np.asarray(memories, dtype=np.int64)[self.device]
        self.rewritten = self._rewritten(parts, units.rows, owner, memory)
        self.sent: list[tuple[int, int, int]] = []  # value, sender, receiver

    def _rewritten(self, parts: Ragged, unit_of: IntArray, owner: IntArray, memory: IntArray) -> IntArray:
        """Return the pairs (reader, recomputation) of other devices' reads of a value that is recomputed in its memory.

        Such readers have the first value, and the recomputation waits until they have ended.
        """
        again = np.flatnonzero(owner[parts.items] != parts.rows)
        if not len(again) or len(set(memory.tolist())) == len(set(self.device.tolist())):
            return np.zeros((0, 2), dtype=np.int64)
        writes = self.graph.writes.gather(parts.items[again])
        readers: dict[int, list[int]] = {}
        for value, reader in zip(self.value.tolist(), self.reader.tolist(), strict=True):
            readers.setdefault(value, []).append(reader)
        pairs = {
            (reader, writer)
            for value, writer in zip(
                writes.items.tolist(), unit_of[parts.rows[again[writes.rows]]].tolist(), strict=True
            )
            for reader in readers.get(value, ())
            if self.device[reader] != self.device[writer] and memory[reader] == memory[writer]
        }
        return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)

    def check(self, transfers: str, findings: Findings) -> None:
        """Remove operations without predecessors repeatedly; if any remain, they contain a cycle."""
        runs = len(self.device)
        next_up = np.flatnonzero(self.device[1:] == self.device[:-1]) + 1
        ends = np.column_stack((np.concatenate((self.maker, next_up - 1)), np.concatenate((self.reader, next_up))))
        ends = np.concatenate((ends, self.rewritten))
        if transfers != "overlap":
            more = self._meetings(transfers)
            ends = np.concatenate((ends, np.array(more, dtype=np.int64).reshape(-1, 2)))
        count = runs + len(self.sent)
        before, after = np.divmod(np.unique(ends[:, 0] * count + ends[:, 1]), count)
        following = Ragged(np.searchsorted(before, np.arange(count + 1)), after).to_lists()
        left = np.bincount(after, minlength=count).tolist()
        ready = [number for number, needs in enumerate(left) if needs == 0]
        for number in ready:
            for other in following[number]:
                left[other] -= 1
                if left[other] == 0:
                    ready.append(other)
        if len(ready) == count:
            return
        done = [needs == 0 for needs in left]
        needs = Ragged.from_lists(following).transposed(count).to_lists()
        cycle = _shortest_cycle_through([k for k, is_done in enumerate(done) if not is_done], needs, done)
        shown = [self._named(number) for number in cycle]
        if len(shown) > MOST_SHOWN:
            shown = [*shown[: MOST_SHOWN - 1], f"({len(shown) - MOST_SHOWN + 1} more)"]
        findings.add(None, "deadlock", f"{' waits for '.join([*shown, shown[0]])}")

    def _named(self, number: int) -> str:
        if number >= len(self.device):
            value, *ends = self.sent[number - len(self.device)]
            source, target = (self.devices[end] for end in ends)
            return f"{self.graph.values[value]} from {source} to {target}"
        own = (self.orders.columns[1:, int(k)].tolist() for k in self.orders.units[number])
        named = "&".join(str(Pass(Phase(phase), stage, batch)) for phase, stage, batch in own)
        return f"{named} on {self.devices[int(self.device[number])]}"

    def _meetings(self, transfers: str) -> list[tuple[int, int]]:
        """Number the transfers and return the precedences among each device's sends, receives and runs."""
        device, runs = self.device.tolist(), len(self.device)
        rows = zip(self.value.tolist(), self.maker.tolist(), self.reader.tolist(), strict=True)
        readers: dict[tuple[int, int, int], list[int]] = {}
        for value, maker, reader in rows:
            if device[maker] != device[reader]:
                readers.setdefault((value, device[reader], maker), []).append(reader)
        # By device and operation: what it sends and receives before that, and after the one before.
        turns: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        found: list[tuple[int, int]] = []
        for number, ((value, target, maker), waiting) in enumerate(sorted(readers.items()), start=runs):
            self.sent.append((value, device[maker], target))
            turns.setdefault((device[maker], maker + 1), ([], []))[0].append(number)
            if transfers != "blocking":
                turns.setdefault((target, min(waiting)), ([], []))[1].append(number)
            found += [(number, reader) for reader in waiting]
        for (own, following), posts in turns.items():
            earlier, later = ([k] if 0 <= k < runs and device[k] == own else [] for k in (following - 1, following))
            posted = [*posts[0], *posts[1]]
            if transfers == "grouped":
                found += [(k, number) for k in earlier for number in posted]
                found += [(number, k) for k in later for number in posted]
            else:
                found += list(pairwise([*earlier, *posted, *later]))
        return found


def _shortest_cycle_through(stuck: list[int], before: list[list[int]], done: list[bool]) -> list[int]:
    """Return a cycle of operations that wait for each other: a shortest one through one operation on a cycle."""
    # Each blocked operation waits for another blocked one, so following the waits leads into a cycle.
    at, seen = stuck[0], set[int]()
    while at not in seen:
        seen.add(at)
        at = next(other for other in sorted(before[at]) if not done[other])
    origin = at
    came: dict[int, int] = {}
    front = [origin]
    while front:
        following: list[int] = []
        for number in front:
            for other in sorted(before[number]):
                if other == origin:
                    path = [number]
                    while path[-1] != origin:
                        path.append(came[path[-1]])
                    return path[::-1]
                if not done[other] and other not in came:
                    came[other] = number
                    following.append(other)
        front = following
    raise AssertionError("an operation that is visited twice is on a cycle")
