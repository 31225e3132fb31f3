"""Event simulation of pipelines without end: memory of a row of stages, counting every version separately.

Written from the definitions alone: a micro-batch holds its activation from the start of its forward to the end of its
backward. With versions, its forward takes the newest version; its backward uses the same version and ends with a new
one. A version exists while it is the newest, or while a micro-batch in flight uses it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ortools.sat.python import cp_model


class Held(NamedTuple):
    """The most that one stage holds: bytes, micro-batches, versions; and the largest staleness."""

    size: int
    in_flight: int
    versions: int
    staleness: int


def hold(begin: int, end: int, period: int, sizes: tuple[int, int], mode: str, every: int, batches: int) -> Held:
    """Follow one stage whose forward of micro-batch 0 begins, and whose backward ends, at these times.

    `sizes` are those of an activation and of a version of the parameters.
    """
    # At one instant, what ends comes first.
    forwards = [(begin + m * period, 1, m) for m in range(batches)]
    backwards = [(end + m * period, 0, m) for m in range(batches)]
    done = 0
    used: dict[int, int] = {}
    most = Held(sizes[1], 0, 1, 0)
    for _, is_forward, m in sorted(forwards + backwards):
        if is_forward:
            used[m] = done // every
            late = m // every - used[m]  # its own change is the one that ends its group
        else:
            done += 1
            del used[m]
            late = 0
        versions = 1 if mode == "single" else len({*used.values(), done // every})
        size = len(used) * sizes[0] + versions * sizes[1]
        most = Held(*map(max, most, (size, len(used), versions, late)))
    return most


def least_kept(forward: Sequence[int], backward: Sequence[int], hops: Sequence[int], period: int, stage: int) -> int:
    """Return the fewest micro-batches that a stage keeps in any pattern of a period, by a constraint program.

    Stages lie one a device; a link carries both directions, one at a time.
    """
    model = cp_model.CpModel()
    stages = len(forward)
    horizon = period * (2 * (2 * stages - 1) + 2)

    def start() -> cp_model.IntVar:
        return model.new_int_var(0, horizon, "")

    def apart(first: cp_model.IntVar, took: int, second: cp_model.IntVar, takes: int) -> None:
        """Constrain two intervals not to overlap modulo the period; the second starts `rest` after the first."""
        if took == 0 or takes == 0:
            return
        turns = model.new_int_var(-horizon, horizon, "")
        rest = model.new_int_var(took, period - takes, "")
        model.add(second - first == rest + period * turns)

    ahead, back = [start() for _ in range(stages)], [start() for _ in range(stages)]
    for k in range(stages):
        model.add(back[k] >= ahead[k] + forward[k])
        apart(ahead[k], forward[k], back[k], backward[k])
    for k, hop in enumerate(hops):
        sent, returned = start(), start()
        model.add(sent >= ahead[k] + forward[k])
        model.add(ahead[k + 1] >= sent + hop)
        model.add(returned >= back[k + 1] + backward[k + 1])
        model.add(back[k] >= returned + hop)
        apart(sent, hop, returned, hop)
    kept = model.new_int_var(1, 4 * stages, "")
    model.add(kept * period >= back[stage] + backward[stage] - ahead[stage])
    model.minimize(kept)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return int(solver.value(kept))
