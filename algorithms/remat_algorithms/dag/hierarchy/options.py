"""Options of a subgraph: alternative backward parts with their saved values, and their Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remat.plugin import Number
from remat_algorithms.dag.hierarchy.network import Network


@dataclass(frozen=True, slots=True)
class Option:
    """An option for the backward of a subgraph, including its recomputations.

    Attributes
    ----------
    runs : tuple of int
        Local positions: the subgraph's forward positions from 0, then its backward positions.
    time : int or float
        Total time of these runs.
    saved : int
        Bytes between forward and backward, without inputs and outputs of the subgraph.
    forward_peak, backward_peak : int
        Bytes beyond the inputs of the subgraph, and beyond gradients that pass by.
    """

    runs: tuple[int, ...]
    time: Number
    saved: int
    forward_peak: int
    backward_peak: int

    @property
    def rank(self) -> tuple[Number, int, int, int]:
        """Sort key: better options have smaller values."""
        return self.time, self.saved, self.forward_peak, self.backward_peak


@dataclass(frozen=True)
class Subgraph:
    """A range of forward positions with its backward positions.

    Attributes
    ----------
    low, high : int
    backward : range
        Positions of the backward.
    outputs : tuple of int
        Values made here that later positions read.
    ends : tuple of int
        Gradients that this backward makes or reads and that later tasks read.
    entering : int
        Bytes of gradients that this backward reads and does not make.
    forward_time : int or float
    fast_peak : int
        Peak of the forward if nothing but outputs is saved.
    """

    network: Network
    low: int
    high: int
    backward: range
    outputs: tuple[int, ...]
    ends: tuple[int, ...]
    entering: int
    forward_time: Number
    fast_peak: int

    @property
    def length(self) -> int:
        """Number of forward positions."""
        return self.high - self.low

    def local(self, position: int) -> int:
        """Return the local number of a position."""
        return position - self.low if position < self.high else position - self.backward.start + self.length

    def positions(self, runs: Iterable[int]) -> list[int]:
        """Return the positions of local numbers."""
        forward, backward = self.low, self.backward.start - self.length
        return [run + (forward if run < self.length else backward) for run in runs]

    def option(self, runs: Sequence[int]) -> Option:
        """Measure the backward runs (positions) of an option."""
        network = self.network
        piece = network.measure(runs, self.low, self.ends)
        saved = [value for value in piece.needed if network.made[value] < network.forward and value not in self.outputs]
        forward = network.measure(range(self.low, self.high), self.low, {*saved, *self.outputs})
        return Option(
            runs=tuple(self.local(position) for position in runs),
            time=piece.time,
            saved=sum(network.size[value] for value in saved),
            forward_peak=forward.peak,
            backward_peak=piece.peak,
        )


def subgraph_of(network: Network, low: int, high: int) -> Subgraph:
    """Return the subgraph of forward positions from `low` to below `high`."""
    backward = network.backward_of(low, high)
    outputs = tuple(value for value in network.made_within(low, high) if network.reach[value] >= high)
    ends, entering = dict[int, None](), 0
    seen = set[int]()
    for position in backward:
        for value in (*network.reads[position], *network.writes[position]):
            if network.made[value] < network.forward or value in seen:
                continue
            seen.add(value)
            if network.until[value] < low:
                ends[value] = None
            if network.made[value] < backward.start:
                entering += network.size[value]
    fast = network.measure(range(low, high), low, outputs)
    return Subgraph(network, low, high, backward, outputs, tuple(ends), entering, fast.time, fast.peak)


def gradient_bytes(network: Network, cuts: Sequence[int], part: Subgraph) -> list[int]:
    """Return for each cut the bytes of gradients that are alive after its backward, without those that pass by."""
    found = []
    inside = {
        value
        for position in part.backward
        for value in (*network.reads[position], *network.writes[position])
        if network.made[value] >= network.forward
    }
    for cut in cuts:
        border = network.first_backward[cut]
        alive = (value for value in inside if network.made[value] < border and network.until[value] < cut)
        found.append(sum(network.size[value] for value in alive))
    return found


def undominated(options: Iterable[Option]) -> list[Option]:
    """Return the options that no other one is as good as in every respect, fastest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (*option.rank, option.runs)):
        if not any(all(a <= b for a, b in zip(other.rank, option.rank, strict=True)) for other in kept):
            kept.append(option)
    return kept


def on_grid(options: Sequence[Option], peaks: int, saves: int) -> list[Option]:
    """Return the fastest option within each pair of budgets: `peaks` of the peak, and `saves` of the saved bytes."""
    front = undominated(options)
    if len(front) <= peaks * saves:
        return front
    peak = [max(option.forward_peak, option.backward_peak) for option in front]
    saved = [option.saved for option in front]
    chosen = set[int]()
    for high in even(min(peak), max(peak), peaks):
        for most in even(min(saved), max(saved), saves):
            fits = [place for place in range(len(front)) if peak[place] <= high and saved[place] <= most]
            if fits:
                chosen.add(fits[0])
    chosen.update((peak.index(min(peak)), saved.index(min(saved))))
    return [front[place] for place in sorted(chosen)]


def even(low: int, high: int, count: int) -> list[int]:
    """Return `count` numbers at equal distances, the ends included, ascending; fewer if some are equal."""
    return sorted({high - (high - low) * number // max(1, count - 1) for number in range(count)})
