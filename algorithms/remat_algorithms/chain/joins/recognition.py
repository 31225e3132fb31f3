"""Recognition of k disjoint chains that join in one loss, in the task graph of any instance.

The loss reads x_L of each chain and writes each y_L, and has no other values. In stage i, forwards read only x_{i-1}
and write x_i; a saving forward also writes values that a backward reads. Backwards read y_i, any of x_{i-1}, x_i and
the values that one saving forward wrote, and write y_{i-1}. Several backwards of a stage are variants. A chain may
begin with a task without inputs, and end with one without outputs. Then x_0 or y_0 has no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.plugin import BoolArray, Chain, IntArray, Number, NumberArray, OptionError, Problem, TaskGraph, Variants

MOST_LOOKS = 2_000_000
"""Maximum number of tasks examined, including repeated examinations for other losses."""


@dataclass(frozen=True, eq=False)
class Branch:
    """A chain of the join.

    Attributes
    ----------
    chain : Chain
        With a loss that takes no time or memory.
    task : (tasks of the separate chain,) int64
        Their indices in the graph; -1 for missing tasks.
    keeps_gradient : bool
        Whether y_0 must remain at the end; otherwise its backward drops it.
    """

    chain: Chain
    task: IntArray
    keeps_gradient: bool

    def equals(self, other: Branch) -> bool:
        """Whether two chains have the same needs and costs everywhere."""
        pair = (self.chain.alternatives, other.chain.alternatives)
        mine, theirs = ({**vars(one.chain), **vars(ways)} for one, ways in zip((self, other), pair, strict=True))
        names = mine.keys() - {"variants"}
        return self.keeps_gradient == other.keeps_gradient and all(
            np.array_equal(mine[name], theirs[name]) for name in names
        )


@dataclass(frozen=True)
class Join:
    """Chains that join in one loss.

    Attributes
    ----------
    branches : tuple of Branch
    loss : int
        Index of the loss in the graph.
    in_place : bool
    resident : int
        Permanently occupied bytes: static memory and pinned inputs.
    """

    graph: TaskGraph
    branches: tuple[Branch, ...]
    loss: int
    in_place: bool
    resident: int

    @property
    def loss_time(self) -> Number:
        """Time of the loss."""
        time: Number = self.graph.time[self.loss].item()
        return time

    @property
    def loss_workspace(self) -> int:
        """Workspace of the loss."""
        return int(self.graph.workspace[self.loss])


def join_of(problem: Problem, name: str) -> Join:
    """Return the problem's graph as a join.

    Raises
    ------
    remat.OptionError
        If the graph is not a join; the message states the obstacle.
    """
    return _Reading(problem, name).join()


class _Unlike(Exception):
    """The graph is not a join with this loss; holds the reason and the number of tasks matched before."""

    def __init__(self, why: str, tasks: int) -> None:
        super().__init__(why)
        self.why, self.tasks = why, tasks


@dataclass(frozen=True)
class _Stage:
    """Tasks of one stage: a plain forward, and pairs of a saving forward (-1: the plain one) and a backward."""

    forward: int
    ways: tuple[tuple[int, int], ...]


class _Reading:
    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name = problem, name
        self.graph = graph = problem.graph
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.producers, self.readers = graph.producers.to_lists(), graph.readers.to_lists()
        self.inputs = {place.value for place in graph.inputs}
        self.outputs = {place.value for place in graph.outputs}
        self.looks = 0

    def refuse(self, why: str) -> OptionError:
        return OptionError(f"{self.name!r} takes one loss that reads k disjoint chains; {why}", argument="algorithm")

    def join(self) -> Join:
        graph, machine = self.graph, self.problem.machine
        home = machine.processors[0].memory
        names = [memory.name for memory in machine.memories]
        for place in (*graph.inputs, *graph.outputs):
            at = 0 if place.memory is None else names.index(place.memory)
            if at != home:
                raise self.refuse(
                    f"{graph.values[place.value]!r} is in memory {names[at]!r}, which the algorithm does not use"
                )
        likely = [task for task in range(len(self.reads)) if self.reads[task] and self.writes[task]]
        must = graph.required | graph.once
        likely.sort(key=lambda task: (not must[task], -len(self.writes[task]), -len(self.reads[task])))
        furthest = _Unlike("no task reads and writes values", -1)
        for loss in likely:
            try:
                return self.with_loss(loss)
            except _Unlike as unlike:
                if unlike.tasks > furthest.tasks:
                    furthest = unlike
        raise self.refuse(f"here {furthest.why}")

    def with_loss(self, loss: int) -> Join:
        """Match the graph with this task as the loss."""
        self.used = {loss}
        self.taken: set[int] = set()
        read, written = len(self.reads[loss]), len(self.writes[loss])
        if read != written:
            raise self.unlike(f"task {self.graph.described(loss, repr)} reads {read} values and writes {written}")
        forward = [self.activations(value) for value in self.reads[loss]]
        gradient = [self.gradients(value, loss) for value in self.writes[loss]]
        branches = [self.branch(xs, ys) for xs, ys in zip(forward, self.paired(forward, gradient), strict=True)]
        rest = [task for task in range(len(self.reads)) if task not in self.used]
        if rest:
            raise self.unlike(f"task {self.graph.described(rest[0], repr)} belongs to no chain")
        known = {xs[0] for xs in forward}
        ends = {ys[0] for ys in gradient}
        for value in sorted((self.inputs - known) | (self.outputs - known - ends)):
            raise self.unlike(f"{self.graph.values[value]!r} is an input or output, but not the end of a chain")
        if len(set(self.graph.in_place.tolist())) > 1:
            raise self.unlike("some tasks are in place and others are not")
        stay = sum(int(self.graph.size[value]) for value in self.inputs if self.stays(value))
        in_place = bool(self.graph.in_place[loss])
        return Join(self.graph, tuple(branches), loss, in_place, self.graph.static_memory + stay)

    def unlike(self, why: str) -> _Unlike:
        return _Unlike(why, len(self.used))

    def take(self, value: int) -> None:
        self.looks += 1
        if self.looks > MOST_LOOKS:
            raise self.refuse("this graph is too large to see whether it is one")
        if value in self.taken:
            raise self.unlike(f"value {self.graph.values[value]!r} belongs to two chains")
        self.taken.add(value)

    def stays(self, value: int) -> bool:
        """Whether an input must stay in memory."""
        return value in self.graph.pinned or value in self.outputs

    def activations(self, last: int) -> list[int]:
        """Return x_0 .. x_L that end in this value; x_0 is -1 if the first forward has no inputs."""
        values = [last]
        while values[-1] >= 0:
            value = values[-1]
            self.take(value)
            made = self.producers[value]
            if not made:
                if value not in self.inputs:
                    raise self.unlike(f"nothing makes {self.graph.values[value]!r}")
                break
            read = {tuple(self.reads[task]) for task in made}
            if len(read) > 1 or len(next(iter(read))) > 1 or value in self.inputs:
                raise self.unlike(f"{self.graph.values[value]!r} is not computed from a single value")
            values.append(next(iter(next(iter(read))), -1))
        if len(values) < 2:
            raise self.unlike(f"the loss reads an input, {self.graph.values[last]!r}")
        return values[::-1]

    def gradients(self, last: int, loss: int) -> list[int]:
        """Return y_0 .. y_L that begin with this value; y_0 is -1 if the last backward has no outputs."""
        values, made = [last], [loss]
        while True:
            value = values[-1]
            self.take(value)
            if self.producers[value] != made:
                raise self.unlike(f"{self.graph.values[value]!r} is also written by other tasks")
            made = self.readers[value]
            if not made:
                break
            written = {tuple(self.writes[task]) for task in made}
            if len(written) > 1 or len(next(iter(written))) > 1:
                raise self.unlike(f"what reads {self.graph.values[value]!r} does not all make one gradient")
            values.append(next(iter(next(iter(written))), -1))
            if values[-1] < 0:
                break
        if len(values) < 2:
            raise self.unlike(f"no backward reads {self.graph.values[last]!r}")
        return values[::-1]

    def paired(self, forward: list[list[int]], gradient: list[list[int]]) -> list[list[int]]:
        """Return the gradients of each chain: those whose backwards read its values."""
        chain_of: dict[int, int] = {}
        for number, xs in enumerate(forward):
            made = [value for x in xs[1:] for task in self.producers[x] for value in self.writes[task]]
            chain_of |= dict.fromkeys([*xs, *made], number)
        found: dict[int, list[int]] = {}
        free = []
        for ys in gradient:
            read = {chain_of.get(v) for y in ys[1:] for task in self.readers[y] for v in self.reads[task]} - {None}
            number = min((one for one in read if one is not None), default=-1)
            if number in found or len(read) > 1:
                raise self.unlike(f"the backwards from {self.graph.values[ys[-1]]!r} on are not of one chain alone")
            if number < 0:
                free.append(ys)
            else:
                found[number] = ys
        # Backwards that read only gradients fit any chain of their length: all pairings give the same graph.
        for number, xs in enumerate(forward):
            if number not in found:
                fitting = next((ys for ys in free if len(ys) == len(xs)), None)
                if fitting is None:
                    raise self.unlike(f"no backwards belong to the chain that ends in {self.graph.values[xs[-1]]!r}")
                free.remove(fitting)
                found[number] = fitting
        return [found[number] for number in range(len(forward))]

    def branch(self, xs: list[int], ys: list[int]) -> Branch:
        if len(xs) != len(ys):
            raise self.unlike(
                f"the chain that ends in {self.graph.values[xs[-1]]!r} has {len(xs) - 1} forwards"
                f" and {len(ys) - 1} backwards"
            )
        length = len(xs) - 1
        stages = [self.stage(xs[i], xs[i + 1], ys[i], ys[i + 1]) for i in range(length)]
        return self.arrays(stages, xs, ys)

    def stage(self, x: int, after: int, y: int, y_after: int) -> _Stage:
        graph = self.graph
        made, backward = self.producers[after], self.readers[y_after]
        self.used.update(made, backward)
        for task in made:
            if graph.once[task] or not graph.recomputable[task] or (graph.required[task] and len(made) > 1):
                why = "must run" if graph.required[task] and len(made) > 1 else "cannot be recomputed"
                raise self.unlike(f"forward {graph.described(task, repr)} {why}")
        plain = [task for task in made if len(self.writes[task]) == 1]
        if len(plain) > 1 or (not plain and len(made) > 1):
            raise self.unlike(f"{graph.values[after]!r} is written by several equal forwards")
        ways = tuple((self.saving(task, x, after, y_after), task) for task in backward)
        needed = [task for task in backward if graph.required[task] or graph.once[task]]
        wanted = y in self.outputs or (y >= 0 and self.readers[y])
        if (len(backward) > 1 and needed) or not (wanted or needed):
            raise self.unlike(f"not exactly one of the backwards must run, as of {graph.described(backward[0], repr)}")
        return _Stage((plain or made)[0], ways)

    def saving(self, backward: int, x: int, after: int, gradient: int) -> int:
        """Return the forward that writes a backward's inputs other than activations and gradient; -1 without any."""
        saved = set(self.reads[backward]) - {x, after, gradient}
        writers = {task for value in saved for task in self.producers[value]}
        if not saved:
            return -1
        (only, *others) = sorted(writers) or [-1]
        if others or only not in self.producers[after] or not saved <= set(self.writes[only]):
            raise self.unlike(
                f"{self.graph.described(backward, repr)} reads a value that no forward of its stage saves"
            )
        return only

    def saved_bytes(self, forward: int, backward: int, after: int) -> tuple[int, int]:
        """Return the bytes that a forward writes in addition to x_i: those that the backward reads, and the others."""
        graph = self.graph
        extra = [value for value in self.writes[forward] if value != after]
        saved = sum(int(graph.size[value]) for value in extra if value in self.reads[backward])
        other = sum(int(graph.size[value]) for value in extra) - saved
        if other and graph.in_place[forward]:
            raise self.unlike(
                f"{graph.described(forward, repr)}, which is in place, writes what its backward does not read"
            )
        return saved, other

    def arrays(self, stages: list[_Stage], xs: list[int], ys: list[int]) -> Branch:
        """Return the chain as arrays, and the indices of its tasks."""
        graph = self.graph
        time, workspace = graph.time, graph.workspace
        ways = [(i, saving, backward) for i, stage in enumerate(stages) for saving, backward in stage.ways]
        start = np.concatenate(([0], np.cumsum([len(stage.ways) for stage in stages]))).astype(np.int64)
        forward = [stage.forward for stage in stages]
        # A forward that always saves holds its saved values while it runs, even if no task reads them.
        unkept = [self.saved_bytes(task, -1, xs[i + 1])[1] for i, task in enumerate(forward)]
        saved = [self.saved_bytes(saving, task, xs[i + 1]) if saving >= 0 else (0, 0) for i, saving, task in ways]
        used = [saving if saving >= 0 else forward[i] for i, saving, _ in ways]
        sizes = [[0 if value < 0 else int(graph.size[value]) for value in values] for values in (xs, ys)]
        if xs[0] >= 0 and self.stays(xs[0]):
            sizes[0][0] = 0

        def times(tasks: list[int]) -> NumberArray:
            return time[np.array(tasks, dtype=np.int64)]

        def column(values: list[int]) -> IntArray:
            return np.array(values, dtype=np.int64)

        def flags(values: list[int]) -> BoolArray:
            return np.array([v in self.reads[task] for v, (_, _, task) in zip(values, ways, strict=True)], dtype=bool)

        saves = np.array([saving >= 0 for _, saving, _ in ways], dtype=bool)
        variants = Variants(
            start=start,
            saving_forward_time=times(used),
            backward_time=times([task for _, _, task in ways]),
            saved_size=column([kept for kept, _ in saved]),
            saving_workspace=workspace[used] + column([other for _, other in saved]),
            backward_workspace=workspace[[task for _, _, task in ways]],
            reads_input=flags([xs[i] for i, _, _ in ways]),
            reads_output=flags([xs[i + 1] for i, _, _ in ways]),
            reads_saved=saves,
        )
        first = start[:-1]
        own = {name: column_of[first] for name, column_of in vars(variants).items() if name != "start"}
        chain = Chain(
            forward_time=times(forward),
            activation_size=column(sizes[0]),
            gradient_size=column(sizes[1]),
            forward_workspace=workspace[forward] + column(unkept),
            in_place=bool(graph.in_place[forward[0]]),
            variants=variants,
            **own,
        )
        savings = [saving for _, saving, _ in ways]
        task = np.array([*forward, *savings, -1, *(backward for _, _, backward in ways)], dtype=np.int64)
        return Branch(chain, task, ys[0] in self.outputs)
