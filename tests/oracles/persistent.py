"""Memory-persistent schedules of a chain of any form: full enumeration, and the minimum time by recursion.

Chains may have variants, backwards that do not read their input, output or saved values, in-place tasks, and gradients
with separate sizes. The code uses names and sizes of the lowered graph. All bytes of a segment count, including those
of its first x_i.
"""

import math
from functools import cache

from . import lowering


class Chain:
    """The stages of a lowered chain; stage i takes x_i to x_{i+1}, stage L is the loss."""

    def __init__(self, document):
        self.graph = lowering.lower(document)
        self.tasks, self.size = self.graph.tasks, self.graph.values
        self.length = sum(name.startswith("F") and not name.startswith("Fe") for name in self.tasks)
        self.in_place = document.get("in_place", False)
        self.ways = []
        for i in range(1, self.length + 1):
            names = [name for name in self.tasks if name == f"B{i}" or name.startswith(f"B{i}.")]
            self.ways.append([(self._forward(name, i), name) for name in names])

    def _forward(self, backward, i):
        saved = "s" + backward[1:]
        return "Fe" + backward[1:] if saved in self.tasks[backward].reads else f"F{i}"

    def bytes(self, values):
        return sum(self.size[value] for value in set(values))

    def during(self, name, resident, dropped):
        """Return the bytes while a task runs next to resident values, if it drops some of its reads at its end."""
        task = self.tasks[name]
        made = self.bytes(task.writes)
        if self.in_place:
            made = max(0, made - self.bytes(dropped))
        return self.bytes(resident) + made + task.workspace


# --- all schedules ------------------------------------------------------------------------------------------------


def all_runs(chain, i, last):
    """Yield the lists of runs of all persistent schedules of the segment (i, last)."""
    if i == chain.length:
        yield ["loss"]
        return
    for forward, backward in chain.ways[i]:
        if i == last:
            reads = chain.tasks[backward].reads
            needs_forward = forward.startswith("Fe") or f"x{i + 1}" in reads
            yield [forward, backward] if needs_forward else [backward]
        else:
            for inside in all_runs(chain, i + 1, last):
                yield [forward, *inside, backward]
    for j in range(i + 1, last + 1):
        sweep = [f"F{k + 1}" for k in range(i, j)]
        for right in all_runs(chain, j, last):
            for left in all_runs(chain, i, j - 1):
                yield [*sweep, *right, *left]


def peak_of(chain, runs):
    """Return the peak of a list of runs if every value goes after its last use."""
    resident, peak = {"x0"}, chain.size["x0"]
    for number, name in enumerate(runs):
        task = chain.tasks[name]
        gone = {value for value in resident | set(task.writes) if not _used_later(chain, runs, number, value)}
        peak = max(peak, chain.during(name, resident, gone & set(task.reads)))
        resident = (resident | set(task.writes)) - gone
    return peak + chain.graph.static


def _used_later(chain, runs, number, value):
    for name in runs[number + 1 :]:
        if value in chain.tasks[name].reads:
            return True
        if value in chain.tasks[name].writes:
            return False
    return value == "y0"


def trade_offs(document):
    """Return {peak: minimum time} of all persistent schedules without dominated ones."""
    chain = Chain(document)
    found = {}
    for runs in all_runs(chain, 0, chain.length):
        peak, time = peak_of(chain, runs), sum(chain.tasks[name].time for name in runs)
        found[peak] = min(time, found.get(peak, math.inf))
    front = {}
    for peak in sorted(found):
        if not front or found[peak] < min(front.values()):
            front[peak] = found[peak]
    return front


# --- by recursion -------------------------------------------------------------------------------------------------


class Recursion:
    """Minimum times of segments: `best(m, i, last, held)`, x_i and y_{last+1} resident and counted in m.

    `held` says that x_i must still be there at the end.
    """

    def __init__(self, document):
        self.chain = Chain(document)
        self.best = cache(self._best)

    def least_time(self, budget):
        """Return the minimum makespan within a budget, or None."""
        chain = self.chain
        time = self.best(budget - chain.graph.static, 0, chain.length, False)
        return None if time == math.inf else time

    def _gradient(self, last):
        return [] if last == self.chain.length else [f"y{last + 1}"]

    def _best(self, memory, i, last, held):
        chain, own = self.chain, f"x{i}"
        if chain.bytes([own, *self._gradient(last)]) > memory:
            return math.inf
        if i == chain.length:
            fits = chain.during("loss", [own], [] if held else [own]) <= memory
            return chain.tasks["loss"].time if fits else math.inf
        ways = [self._through(memory, i, last, held, *way) for way in chain.ways[i]]
        return min([*ways, *self._splits(memory, i, last, held)])

    def _through(self, memory, i, last, held, forward, backward):
        chain, own, output = self.chain, f"x{i}", f"x{i + 1}"
        reads = chain.tasks[backward].reads
        stays = [own] if held or own in reads else []
        saved = [value for value in reads if value.startswith("s")]
        time = chain.tasks[backward].time
        gone = [value for value in reads if not (held and value == own)]
        beside = [*stays, *reads]
        if chain.during(backward, beside, gone) > memory:
            return math.inf
        if i < last or output in reads or saved:
            time += chain.tasks[forward].time
            if chain.during(forward, [own, *self._gradient(last)], [] if stays else [own]) > memory:
                return math.inf
        if i < last:
            time += self.best(memory - chain.bytes(stays + saved), i + 1, last, output in reads)
        return time

    def _splits(self, memory, i, last, held):
        chain, own, sweep = self.chain, f"x{i}", 0
        for j in range(i + 1, last + 1):
            forward, before = f"F{j}", f"x{j - 1}"
            resident = {own, before, *self._gradient(last)}
            if chain.during(forward, resident, [before] if before != own else []) > memory:
                return
            sweep += chain.tasks[forward].time
            right = self.best(memory - chain.size[own], j, last, False)
            yield sweep + right + (self.best(memory, i, j - 1, held) if right < math.inf else math.inf)
