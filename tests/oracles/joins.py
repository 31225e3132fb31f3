"""Enumeration of all nested persistent schedules of a join, by names of the lowered graph.

Chain j advances by saving its next stage, or by plain forwards to a later stage. After the loss, the chain that
advanced last is reversed first.
"""

import math

from . import lowering


class Join:
    """A lowered join: lengths, and which (forward, backward) each stage may take."""

    def __init__(self, document):
        self.graph = lowering.lower(document)
        self.tasks = self.graph.tasks
        self.in_place = document.get("in_place", False)
        self.lengths = [sum(stage.get("repeat", 1) for stage in chain["stages"]) for chain in document["chains"]]

    def ways(self, j, i):
        """Return (forward, backward) of each variant of a stage, both counted from 1."""
        stem = f"{j}.{i}"
        found = []
        for name, task in self.tasks.items():
            if name == f"B{stem}" or name.startswith(f"B{stem}."):
                saved = "s" + name[1:] in task.reads
                found.append(("Fe" + name[1:] if saved else f"F{stem}", name))
        return found

    def segment(self, j, i, last):
        """Yield the lists of runs of the persistent schedules of stages i+1..last of chain j, before the loss."""
        for forward, backward in self.ways(j, i + 1):
            if i + 1 == last:
                reads = self.tasks[backward].reads
                needed = forward.startswith("Fe") or f"x{j}.{last}" in reads
                yield [forward, backward] if needed else [backward]
            else:
                for inside in self.segment(j, i + 1, last):
                    yield [forward, *inside, backward]
        for split in range(i + 1, last):
            sweep = [f"F{j}.{k + 1}" for k in range(i, split)]
            for right in self.segment(j, split, last):
                for left in self.segment(j, i, split):
                    yield [*sweep, *right, *left]

    def whole(self, at):
        """Yield the lists of runs of all nested schedules from places `at` on."""
        if list(at) == self.lengths:
            yield ["loss"]
            return
        for j, length in enumerate(self.lengths, 1):
            i = at[j - 1]
            for then in range(i + 1, length + 1):
                inner = (*at[: j - 1], then, *at[j:])
                if then == i + 1:
                    for forward, backward in self.ways(j, then):
                        for inside in self.whole(inner):
                            yield [forward, *inside, backward]
                sweep = [f"F{j}.{k + 1}" for k in range(i, then)]
                for inside in self.whole(inner):
                    for left in self.segment(j, i, then):
                        yield [*sweep, *inside, *left]

    def peak(self, runs):
        """Return the peak of a list of runs if every value goes after its last use."""
        size, outputs = self.graph.values, {value for value, _ in self.graph.outputs}
        last_use, seen = {}, set(outputs)
        for number in reversed(range(len(runs))):
            task = self.tasks[runs[number]]
            kept = set(task.reads) | set(task.writes)
            last_use[number] = {value for value in kept if value not in seen}
            seen = (seen - set(task.writes)) | set(task.reads)
        resident = {value for value, _ in self.graph.inputs}
        peak = sum(size[value] for value in resident)
        for number, name in enumerate(runs):
            task = self.tasks[name]
            gone = last_use[number]
            made = sum(size[value] for value in task.writes)
            if self.in_place:
                made = max(0, made - sum(size[value] for value in set(task.reads) & gone))
            peak = max(peak, sum(size[value] for value in resident) + made + task.workspace)
            resident = (resident | set(task.writes)) - gone
        return peak + self.graph.static


def front(document):
    """Return {peak: minimum time} of all nested persistent schedules without dominated ones."""
    join = Join(document)
    found = {}
    for runs in join.whole(tuple([0] * len(join.lengths))):
        peak, time = join.peak(runs), sum(join.tasks[name].time for name in runs)
        found[peak] = min(time, found.get(peak, math.inf))
    best = {}
    for peak in sorted(found):
        if not best or found[peak] < min(best.values()):
            best[peak] = found[peak]
    return best
