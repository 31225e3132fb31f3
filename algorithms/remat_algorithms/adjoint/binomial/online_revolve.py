"""`online-revolve`: checkpoints placed while the number of steps is not known, then Revolve between them.

After Wang, Moin & Iaccarino 2009, "Minimal repetition dynamic checkpointing algorithm for unsteady adjoint
calculation"; and Stumm & Walther 2010, "New algorithms for optimal online checkpointing". s slots, x_0's included;
the live state takes none. Every state has a *rank*, x_0 an infinite one. At the live state x_k, when it turns out
that there is another step:

- a slot is free, or there is a spare checkpoint: discard the earliest spare one, store x_k; x_{k+1} has rank 0;
- otherwise do not store x_k, and x_{k+1} has its rank and one more; the checkpoints of lower rank become spare.

So ranks never increase along the checkpoints that are not spare, and spare ones all lie between two of these.

**What is proved.** Let the i-th checkpoint (i = 0 .. s-1, x_0 the 0-th) be followed by L_i steps up to the next one,
or to the live state. A set of checkpoints reverses with every step advanced at most r times, the first sweep
included, exactly if L_i <= beta(s-i, r-1) for all i (the steps behind a checkpoint have its slot and those of higher
number; Griewank 1992).

*Every step is advanced at most r times, r the least number with n <= beta(s, r), for every n*: no schedule, not even
one that knows n, has a lower maximum. Write rho for the largest finite rank so far. (a) Where nothing is spare, a
state of rank q in the place of the i-th checkpoint, or the live state as the s-th, lies beta(s-i+1, q) steps behind
its predecessor: for q = 0 that is one step; a rank q arises where all from that place on had rank q-1, so that the
distance is 1 + sum_{j=i..s} beta(s-j+1, q-1) = beta(s-i+1, q). Hence L_i <= beta(s-i, rho). (b) While spares remain,
the checkpoint before them reaches over those discarded already, a part of that sum, so L_i is no more than it will be
in the end; the others moved to lower numbers, with more slots; those behind are one step long. (c) The rank rho + 1
first arises where all s distances are beta(s-i, rho), that is for n - 1 = sum_{i<s} beta(s-i, rho) + 1, n = beta(s,
rho + 1) + 1. So r = rho + 1.

*The number of advances is t(n, s), the least of all, for n <= beta(s, 2) + 1 = (s+1)(s+2)/2 + 1*, Stumm and Walther's
range and one step: t(., c) is convex, with differences q where beta(c, q-1) <= L < beta(c, q). So a set of s
checkpoints is optimal exactly if beta(s-i, q-1) <= L_i <= beta(s-i, q) for some q and all i. With q = 1 that asks for
1 <= L_i <= s-i+1, which holds up to n = beta(s, 2). There only L_i = s-i+1 will do; for one step more L_{s-1} = 3 is
the one choice (q = 2), and the next step makes L_{s-1} 4 or 1, where q = 2 asks for 2 or 3. So, for s >= 2, no rule
that does not know n takes the least number of advances for every n up to beta(s, 2) + 2.

Beyond that range the advances are at most r (s+1) / ((r-1) s) times t(n, s), since t(n, s) > n s (r-1) / (s+1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from remat.plugin import Bound, Context, Entry, Problem, Proposal, check_length, expand
from remat_algorithms.adjoint.binomial.revolve import if_built, refused_by_revolve, scope_of
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import (
    ADVANCE,
    BACK,
    DISCARD,
    WRITE,
    Alike,
    Splits,
    reverse_ranges,
)
from remat_algorithms.adjoint.slots import Slots, forgotten, initially_in, transfer_times
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import advances


class OnlinePlacement:
    """The decisions of the first sweep, one step at a time, and the reversal from the remaining checkpoints.

    Parameters
    ----------
    slots : int
        At least 1, x_0's included.
    level : int
        Storage level (memory index) of the checkpoints.
    given : bool
        Whether x_0 already lies there.
    """

    def __init__(self, slots: int, level: int = 0, *, given: bool = False) -> None:
        self.live = 0
        self._slots = slots
        self._level = level
        self._given = given
        self._rank: float = inf
        # Stored states in time order: not spare, with ranks that never increase; spare; and behind the spare ones.
        self._kept: list[tuple[int, float]] = []
        self._spare: deque[int] = deque()
        self._recent: list[tuple[int, float]] = []

    @property
    def checkpoints(self) -> list[int]:
        """The stored states, in time order."""
        return [state for state, _ in self._kept] + list(self._spare) + [state for state, _ in self._recent]

    def advance(self) -> list[Entry]:
        """Decide what precedes one more step: return at most a discard and a write, and the advance."""
        live, entries = self.live, list[Entry]()
        if self._spare or len(self._kept) + len(self._recent) < self._slots:
            if self._spare:
                entries.append((DISCARD, self._spare.popleft(), self._level))
            if live or not self._given:
                entries.append((WRITE, live, self._level))
            self._recent.append((live, self._rank))
            self._rank = 0
        else:
            self._kept += self._recent
            self._recent = []
            self._rank += 1
            while self._kept[-1][1] < self._rank:
                self._spare.appendleft(self._kept.pop()[0])
        self.live = live + 1
        entries.append((ADVANCE, live, live + 1))
        return entries

    def finish(self, *, reached: bool = False) -> Iterator[Entry]:
        """Yield the reversal: the live state's step is the last one, or `reached`, the one that led to it.

        Between two checkpoints, Revolve uses the slots that are free by then.
        """
        stored, end = self.checkpoints, self.live
        if not stored:
            if self._given:
                yield (DISCARD, 0, self._level)
            yield (BACK, 0, 0)
            return
        if not reached:
            yield (BACK, end, 0)
        ranges = [(first, last - first, k, True) for k, (first, last) in enumerate(pairwise([*stored, end]))]
        yield from reverse_ranges(ranges, Alike(self._level, self._slots), Splits(end))


@within_room("online-revolve")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint with the slots of its fastest storage level, or of its one memory, as if n were not known.

    Takes instances of kind `adjoint`. Without storage, slots = floor((budget - state - adjoint) / state). The number of
    steps only ends the first sweep; no earlier decision uses it. Each step is advanced at most r times, with the
    smallest r for which n <= beta(slots, r). The number of advances is minimal for n <= (slots+1)(slots+2)/2 + 1. The
    bound knows n and neglects transfers.

    Raises
    ------
    remat.OptionError
        If the steps' times differ.

    Notes
    -----
    O(steps of the schedule) time. With many slots, the first sweep has nearly as many writes as steps.
    """
    facts, slots = Facts.of(problem), Slots.of(problem)
    refused = refused_by_revolve(facts, slots, "online-revolve")
    if refused is not None:
        return if_built(problem, refused)
    least = advances(facts.steps, max(slots.count, 1))
    name = f"online-revolve with {slots.count} slots"
    check_length(least + facts.steps, name, context.limit)
    plan = Plan()
    plan.extend(_entries(problem, facts, slots))
    check_length(plan.advances + facts.steps, name, context.limit)
    forward, scope = facts.forward or 0, scope_of(slots)
    bound = Bound(least * forward + facts.backward, scope, "revolve")
    # Not `Plan.steps`: in one memory, too, a discarded state leaves when that is decided.
    steps = expand(plan.entries, facts.layout(problem))
    costs = transfer_times(problem, slots.level)
    if costs is None:
        return Proposal(steps=steps, bounds=(bound,))
    makespan = plan.advances * forward + facts.backward
    makespan += costs[0] * plan.writes.get(slots.level, 0) + costs[1] * plan.reads.get(slots.level, 0)
    within = scope if makespan == bound.value else None
    return Proposal(steps=steps, makespan=makespan, bounds=(bound,), optimal_within=within)


def stream(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve` one by one, in O(slots) memory."""
    facts, slots = Facts.of(problem), Slots.of(problem)
    refused = refused_by_revolve(facts, slots, "online-revolve") or facts.too_large(problem)
    return refused or _entries(problem, facts, slots)


def _entries(problem: Problem, facts: Facts, slots: Slots) -> Iterator[Entry]:
    # Count at most as many slots as steps; more are never used.
    placement = OnlinePlacement(max(slots.count, 1), slots.level, given=initially_in(problem, slots.level))
    for _ in range(facts.steps - 1):
        yield from placement.advance()
    yield from placement.finish()
    yield from forgotten(problem, slots.level)
