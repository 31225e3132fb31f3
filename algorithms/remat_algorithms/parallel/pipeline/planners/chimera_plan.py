"""Chimera's planner: the number of devices by exhaustive search over simulated steps.

Li & Hoefler 2021 choose the depth, width and micro-batch size with the fastest step, over all even depths. Widths and
sizes are tried one by one around this search (see `planned`). Part s of the layers is on devices s and p - 1 - s. The
cut minimises the time of the slowest part, each on the slower of its devices.

If that fits for no depth, each device's memory is divided between its two parts, in halves or thirds. The layers are
then cut again such that each part fits in its share. Devices are used in order, starting with the first. O(devices^2 x
layers^2) array operations, and one simulation per depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remat.plugin import Context, Orders, Phase, Problem, Proposal
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.planners.layer_sums import Line
from remat_algorithms.parallel.pipeline.planners.planner_input import (
    Site,
    StageOptions,
    by_simulation,
    enough_layers,
    planned,
)
from remat_algorithms.parallel.pipeline.planners.simulation import Lists, Pipe, makespan
from remat_algorithms.parallel.pipeline.planners.stage_measures import compute, slower
from remat_algorithms.parallel.pipeline.stages import check_copies

SHARES = (None, (1, 2), (1, 3), (2, 3))
"""Share of a device's memory for its part in the first direction; None means that both parts share all of it."""


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Choose how many devices hold layers, and run Chimera's schedule on them."""

    def plan(site: Site) -> Orders | None:
        check_copies(site.instance, 2)
        depths = _depths(site, options)
        alike = site.line(range(max(depths))).alike
        for share in SHARES:
            # If devices differ or their memory is divided, each depth has different pairs of devices.
            together = [depths] if alike and share is None else [[depth] for depth in depths]
            found = [one for part in together if (one := _planned(site, part, share)) is not None]
            if found:
                _, cuts = min(found)
                return _Copies.of(site, len(cuts) - 1).orders(cuts)
        return None

    return planned(problem, plan, options)


def _depths(site: Site, options: StageOptions) -> list[int]:
    """Return the even numbers of devices for which the layers suffice."""
    found = site.depths(options)
    if options.stages is not None:
        rules.chimera(options.stages, 1)  # raises an error for an odd number
    even = sorted({depth - depth % 2 for depth in found if depth > 1})
    if not even:
        rules.chimera(min(site.devices, 2), 1)
        enough_layers(2, site.row.length)
    return even


def _planned(site: Site, depths: list[int], share: tuple[int, int] | None) -> tuple[float, list[int]] | None:
    """Return the minimum makespan over depths, and its cuts; with a share, each part fits in its share of a device."""
    copies = {depth: _Copies.of(site, depth) for depth in depths}
    depth = max(depths)
    there, back = (copies[depth].line(share, direction) for direction in range(2))

    def judge(cuts: list[int], best: float) -> tuple[float, None] | None:
        own = copies[len(cuts) - 1]
        return (float(makespan(own.pipe(cuts), own.lists)), None) if own.fits(cuts) else None

    counting = compute if there.alike else slower(back)
    found = by_simulation(there, counting, depths, judge, passing=there.batches // 2)
    return None if found is None else found[:2]


@dataclass(frozen=True)
class _Copies:
    """Two copies of the model on a number of devices.

    Attributes
    ----------
    site : Site
    depth : int
    whole : rules.Lists
        Chimera's lists as its rule returns them.
    lists : Lists
        The same lists in the simulation's format.
    flights : list of int
        Maximum number of micro-batches that each stage holds.
    """

    site: Site
    depth: int
    whole: rules.Lists
    lists: Lists
    flights: list[int]

    @staticmethod
    def of(site: Site, depth: int) -> _Copies:
        """Build the lists."""
        whole = rules.chimera(depth, site.instance.micro_batches)
        lists = tuple(
            tuple((0 if operation.phase is Phase.F else 1, operation.stage, operation.batch) for operation in own)
            for own in whole.lists
        )
        held, flights = [0] * (2 * depth), [0] * (2 * depth)
        for own in lists:
            for phase, stage, _ in own:
                held[stage] += -1 if phase else 1
                flights[stage] = max(flights[stage], held[stage])
        return _Copies(site, depth, whole, lists + ((),) * (site.devices - depth), flights)

    def line(self, share: tuple[int, int] | None, direction: int) -> Line:
        """Return the devices in the order of a direction, each with the memory for its part in that direction."""
        order = range(self.depth)[:: -1 if direction else 1]
        line = self.site.line(order)
        if share is None:
            return replace(line, positions=tuple(replace(position, room=None) for position in line.positions))
        part_of = share[1] - share[0] if direction else share[0]
        positions = [
            replace(
                position,
                room=None if position.room is None else position.room * part_of // share[1],
                flight=self.flights[direction * self.depth + part],
            )
            for part, position in enumerate(line.positions)
        ]
        return replace(line, positions=tuple(positions), alike=False)

    def fits(self, cuts: Sequence[int]) -> bool:
        """Whether each device has enough memory for its list."""
        row = self.site.row
        for device, room in enumerate(self.site.room[: self.depth]):
            if room is None:
                continue
            parts = {self.whole.part[stage] for stage, home in enumerate(self.whole.place) if home == device}
            held = most = sum(row.kept(cuts[part], cuts[part + 1]) for part in parts)
            for phase, stage, _ in self.lists[device]:
                part = self.whole.part[stage]
                held += (-1 if phase else 1) * row.held(cuts[part], cuts[part + 1])
                most = max(most, held)
            if most > room:
                return False
        return True

    def pipe(self, cuts: Sequence[int]) -> Pipe:
        """Return both directions in the simulation's format."""
        there, back = (self.site.pipe(cuts, range(self.depth)[::way]) for way in (1, -1))
        shifted = tuple(before if before < 0 else before + self.depth for before in back.previous)
        return Pipe(
            place=there.place + back.place,
            devices=there.devices,
            batches=there.batches,
            forward=there.forward + back.forward,
            backward=there.backward + back.backward,
            ways=there.ways + back.ways,
            previous=there.previous + shifted,
        )

    def orders(self, cuts: Sequence[int]) -> Orders:
        """Return the orders of these cuts."""
        return self.site.orders_of(cuts, self.whole.part, self.whole.place, self.lists)
