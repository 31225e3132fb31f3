"""The effects of one step of a schedule: shared vocabulary of the referee and the placer.

Only the reading of a step is shared.  Judging and placing stay separate.

Readings of the format where it is brief
----------------------------------------
- A run without `on` uses the first processor; a drop step without `memory` frees in the working memory.
- `on` is a non-empty list of different processors of one memory, at most `parallel.max` of them (one without
  `parallel`).
- `bytes` is an integer with 1 <= bytes < size, and needs `"drop": true`.
- In-place runs: the inputs that may be reused are the values in both `reads` and `drop`, each counted once,
  even those that the task also writes.
- Between two memories the first listed link is used.
- A collective adds its workspace in the memory of each part; part i is where the i-th processor of `on` is. It occupies
  all channels of the links from each part's memory to the next part's, and from the last to the first; a link that is
  missing is unknown-link. One part alone occupies the link from its memory to itself, if there is one, and may drop
  what it touches; with several parts anything in its `drop` is a bad-step. Its time is the same on any processors.
- A copy from a memory to itself is a bad-step, if there is such a link, too.
- A transfer over a link with a delay ends, in both memories, when the data is there: until then the source is being
  read, and the target holds the bytes. Only its channel is free before.
- A step that cannot be understood has no action; names in a run's `drop` that cannot be understood are ignored.
"""

import math
from dataclasses import dataclass, field

from .lowering import run_time


@dataclass
class Action:
    """One step: when, where, what it needs, adds, writes and frees.

    `needs` and `writes` map (memory, value) to bytes, `adds` maps a memory to the bytes held from start to end in
    addition to resident values, `frees` lists ((memory, value), bytes or None for all of them).
    """

    index: int
    duration: float
    start: float = 0
    resources: tuple = ()
    needs: dict = field(default_factory=dict)
    writes: dict = field(default_factory=dict)
    adds: dict = field(default_factory=dict)
    frees: list = field(default_factory=list)
    partial: bool = False  # the written bytes join those that are there instead of replacing them
    task: str | None = None
    link: tuple | None = None
    around: tuple = ()  # of a collective, the memories of its parts
    delay: float = 0  # of the duration, the part at its end in which the resources are free again

    @property
    def end(self):
        """Start plus duration, in this order of evaluation."""
        return self.start + self.duration

    @property
    def released(self):
        """The time at which the resources are free."""
        return self.start + (self.duration - self.delay) if self.delay else self.end

    @property
    def reads(self):
        """The (memory, value) pairs that are read."""
        return set(self.needs)

    @property
    def freed(self):
        """The (memory, value) pairs that are freed, wholly or in part."""
        return {place for place, _ in self.frees}


def read_step(graph, machine, index, step):
    """Spell out one step.

    Parameters
    ----------
    graph : Graph
    machine : Machine
    index : int
        Position in the list of steps.
    step : dict
        The step; its start time is not looked at.

    Returns
    -------
    action : Action or None
        None when the step cannot be carried out at all.
    rules : list of str
        Names of the rules that the step breaks by itself.
    """
    if not isinstance(step, dict) or ("run" in step and "copy" in step):
        return None, ["bad-step"]
    if "run" in step:
        return _read_run(graph, machine, index, step)
    if "copy" in step:
        return _read_copy(graph, machine, index, step)
    if "drop" in step:
        return _read_drop(graph, machine, index, step)
    return None, ["bad-step"]


def is_time(value):
    """Say whether `value` is a finite number >= 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0


def _read_run(graph, machine, index, step):
    task = graph.tasks.get(step["run"])
    if task is None:
        return None, ["unknown-task"]
    on = step.get("on")
    if on is None:
        on = [next(iter(machine.processors))]
    if not isinstance(on, list) or not on:
        return None, ["bad-step"]
    if any(name not in machine.processors for name in on):
        return None, ["unknown-processor"]
    if task.parts:
        return _read_collective(graph, machine, index, step, on)
    memories = {machine.processors[name] for name in on}
    most = 1 if task.parallel is None else task.parallel["max"]
    if len(set(on)) < len(on) or len(memories) > 1 or len(on) > most:
        return None, ["bad-step"]
    if task.on is not None and not set(on) <= set(task.on):
        return None, ["bad-step"]
    (memory,) = memories

    rules, dropped = [], []
    drops = step.get("drop") or []
    if not isinstance(drops, list):
        return None, ["bad-step"]
    for value in drops:
        if value not in graph.values:
            rules.append("unknown-value")
        elif value not in task.reads and value not in task.writes:
            rules.append("bad-step")
        else:
            dropped.append(value)

    kinds = [machine.types[name] for name in on] if task.times is not None else []
    duration = run_time(task, len(on), min(machine.speeds.get(name, 1) for name in on), kinds)
    if duration is None:
        return None, ["bad-step"]

    written = sum(graph.values[value] for value in set(task.writes))
    if task.in_place:
        written = max(0, written - sum(graph.values[value] for value in set(dropped) & set(task.reads)))
    action = Action(
        index=index,
        duration=duration,
        resources=tuple(on),
        needs={(memory, value): graph.values[value] for value in task.reads},
        writes={(memory, value): graph.values[value] for value in task.writes},
        adds={memory: written + task.workspace},
        frees=[((memory, value), None) for value in dropped],
        task=step["run"],
    )
    return action, rules


def _read_collective(graph, machine, index, step, on):
    task = graph.tasks[step["run"]]
    places = [machine.processors[name] for name in on]
    drops = step.get("drop") or []
    good = len(on) == len(task.parts) and len(set(places)) == len(places) and (not drops or len(places) == 1)
    good = good and isinstance(drops, list) and all(value in (*task.reads, *task.writes) for value in drops)
    good = good and (task.on is None or set(on) <= set(task.on))
    for place, (_, _, wanted) in zip(places, task.parts, strict=False):
        good = good and wanted in (None, place)
    if not good:
        return None, ["bad-step"]
    resources = list(on) if task.busy else []
    for source, target in zip(places, places[1:] + places[:1], strict=True):
        link = machine.link(source, target)
        if link is None and len(places) == 1:
            continue
        if link is None:
            return None, ["unknown-link"]
        resources += [link.channel, *link.also]
    needs, writes, adds = {}, {}, dict.fromkeys(places, task.workspace)
    for place, (reads, made, _) in zip(places, task.parts, strict=True):
        needs |= {(place, value): graph.values[value] for value in reads}
        writes |= {(place, value): graph.values[value] for value in made}
        adds[place] += sum(graph.values[value] for value in made)
    action = Action(
        index=index,
        duration=task.time,
        resources=tuple(dict.fromkeys(resources)),
        needs=needs,
        writes=writes,
        adds=adds,
        frees=[((places[0], value), None) for value in drops],
        task=step["run"],
        around=tuple(places),
    )
    return action, []


def _read_copy(graph, machine, index, step):
    value, source, target, drop = step["copy"], step.get("from"), step.get("to"), step.get("drop", False)
    if value not in graph.values:
        return None, ["unknown-value"]
    if source not in machine.memories or target not in machine.memories:
        return None, ["unknown-memory"]
    link = machine.link(source, target)
    if link is None:
        return None, ["unknown-link"]
    if not isinstance(drop, bool) or source == target:
        return None, ["bad-step"]
    size = graph.values[value]
    partial = step.get("bytes") is not None
    if partial:
        moved = step["bytes"]
        if not isinstance(moved, int) or isinstance(moved, bool) or not 1 <= moved < size or not drop:
            return None, ["bad-bytes"]
        size = moved
    action = Action(
        index=index,
        duration=link.duration(size, graph.ratios.get(value)) + link.delay,
        resources=(link.channel, *link.also),
        needs={(source, value): size},
        writes={(target, value): size},
        adds={target: size},
        frees=[((source, value), size if partial else None)] if drop else [],
        partial=partial,
        link=(source, target),
        delay=link.delay,
    )
    return action, []


def _read_drop(graph, machine, index, step):
    memory = step.get("memory", machine.first)
    if not isinstance(step["drop"], list):
        return None, ["bad-step"]
    if memory not in machine.memories:
        return None, ["unknown-memory"]
    known = [value for value in step["drop"] if value in graph.values]
    rules = ["unknown-value"] * (len(step["drop"]) - len(known))
    return Action(index=index, duration=0, frees=[((memory, value), None) for value in known]), rules
