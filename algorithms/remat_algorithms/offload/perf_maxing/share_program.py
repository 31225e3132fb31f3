"""The program over layers of `auto-perf-maxing`: the shares of bytes that each layer keeps, recomputes and offloads."""

from __future__ import annotations

from dataclasses import dataclass

from remat.plugin import Context
from remat_algorithms.kit.programs.program import FloatArray, ProgramBuilder
from remat_algorithms.kit.programs.solvers import LINEAR, solve_program
from remat_algorithms.offload.perf_maxing.layer_storages import Storages

SLACK = 1e-6
"""Share by which an even split may recompute more than the minimum."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a machine.

    Attributes
    ----------
    room : int
        Bytes of the device without permanent residents.
    out, back : float
        Bytes that cross the link during the forward, or the backward, of one layer; 0 without a link.
    host : float
        Bytes at the host; infinite if unbounded.
    """

    room: int
    out: float
    back: float
    host: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of each layer's bytes to keep and to offload; the rest is recomputed."""

    keep: list[float]
    send: list[float]

    @property
    def remake(self) -> list[float]:
        """The recomputed shares."""
        return [max(0.0, 1 - keep - send) for keep, send in zip(self.keep, self.send, strict=True)]

    @property
    def parts(self) -> tuple[list[float], list[float], list[float]]:
        """The shares kept, recomputed and offloaded."""
        return self.keep, self.remake, self.send


def shares_of(storages: Storages, limits: Limits, context: Context, *, even: bool) -> Shares | None:
    """Solve the program; None if nothing fits.

    a, b and m are the bytes of a layer, those that its backward holds in addition, and those that stay. B is the
    capacity, H the bytes outside the layers. d and u are the bytes that cross the link during a layer's forward and
    backward:

        minimise sum_L r_L,  k_L + r_L + o_L = 1,  k_L >= min(1, m_L / a_L),  o_last = 0
        o_{L-1} a_{L-1} + sum_{l<L} k_l a_l + a_L (+ b_L) <= B,    sum_l k_l a_l + H <= B
        o_L a_L <= d, u,    sum_l o_l a_l <= host

    All layers take the mean time, and many solutions are optimal. The solver's vertex is taken. With `even`, a second
    program finds, among these, one whose largest r_L is minimal. O(1) programs of 2 columns per layer, O(layers) rows.
    """
    least = _solved(storages, limits, context, most=None)
    if least is None or not even:
        return least
    return _solved(storages, limits, context, most=sum(least.remake)) or least


def frugal(storages: Storages, limits: Limits) -> Shares:
    """Return the shares of minimum memory, for the case that nothing fits."""
    keep = [min(1.0, stay / size) if size else 0.0 for size, stay in zip(storages.sizes, storages.staying, strict=True)]
    return Shares(keep, [0.0] * len(keep))


def _solved(storages: Storages, limits: Limits, context: Context, *, most: float | None) -> Shares | None:
    builder, sizes = ProgramBuilder(), storages.sizes
    count, unit = len(sizes), max(1.0, float(max([limits.room, *sizes])))
    cost = 0.0 if most is not None else -1.0
    keep, send = [], []
    for layer, (size, stay) in enumerate(zip(sizes, storages.staying, strict=True)):
        crossing = min(limits.out, limits.back) / size if size and layer + 1 < count else 0.0
        least = min(1.0, stay / size) if size else 0.0
        keep.append(builder.add_column(cost=cost, lower=least, upper=1))
        send.append(builder.add_column(cost=cost, lower=0, upper=min(1.0 - least, crossing)))
        builder.add_row([(keep[-1], 1), (send[-1], 1)], upper=1)
    share = [size / unit for size in sizes]
    held: list[tuple[int, float]] = []
    for layer in range(count):
        entries = [*held, *([(send[layer - 1], share[layer - 1])] if layer else [])]
        # The backward's row dominates the forward's.
        own = sizes[layer] + storages.backward_waters[layer]
        builder.add_row(entries, upper=(limits.room - own) / unit)
        held.append((keep[layer], share[layer]))
    builder.add_row(held, upper=(limits.room - storages.head_water) / unit)
    if limits.host < float("inf"):
        builder.add_row(zip(send, share, strict=True), upper=limits.host / unit)
    if most is not None:
        # 1 - k - o <= z for all layers, with the minimum total.
        worst = builder.add_column(cost=1, upper=1)
        for pair in zip(keep, send, strict=True):
            builder.add_row([(pair[0], 1), (pair[1], 1), (worst, 1)], lower=1)
        builder.add_row([(column, 1) for column in (*keep, *send)], lower=count - most - SLACK * max(1.0, most))
    answer = solve_program(builder.build(), LINEAR, context)
    return None if answer.solution is None else _read(answer.solution, keep, send)


def _read(solution: FloatArray, keep: list[int], send: list[int]) -> Shares:
    return Shares(solution[keep].tolist(), solution[send].tolist())
