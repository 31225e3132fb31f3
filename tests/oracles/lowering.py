"""Lower instance documents to a plain task graph and a plain machine.

Documents are `remat.instance/1` to `/3` dictionaries whose sizes and times are bare numbers.  No validation is done
beyond what falls out of reading them: these functions are fed correct documents.

Readings of the format where it is brief
----------------------------------------
- Chain stages need `forward_time`, `backward_time` and `output_size`; `saved_size` and the workspaces default to 0.
- Adjoint, per-step objects override the instance's own figures.  `state_size` and `adjoint_size` of step i are
  the sizes of x_i and y_i, so y_0 has step 0's *adjoint* size.  With a tape there is one more state x_n and one
  more adjoint y_n: they are as large as those of the last step.
- Tapes are stored as soon as `tape_size` is given, for the instance or in any step (0 in the others).
- The working memory of an adjoint with storage is larger by the static memory, which would otherwise never fit.
- An adjoint document with both `storage` and `machine` runs on the `machine`; a level given neither `slots` nor
  `capacity` is unbounded.
- The working memory is that of the first processor of speed 1; it is where things lie that name no memory.
- Processors without `memory` sit on the first memory; a machine without processors has one called `processor`.
- A channel named like a processor of `count` > 1 is a resource of its own: the processors are name0, name1, ...
- A tree's `parallel` is one object for all tasks, or a list with one object (or null) per task.
- B and loss are `once` and leave `recomputable` at its default.
- A pipeline's `count` of 1 is that of a machine: the device has the bare name. A device's processor and memory are
  both called like it; static memory lies in the first.
- Groups of a level are consecutive devices as listed; a level without bandwidth takes its latency only.
- A layer is in halves where its weight time is anything but the number 0; an object always means halves.
- The backward's workspace is used by B and by W.
- In recompute times a task with times by type counts the least that a device here takes, wherever it ran.
- A forward of a pipeline is not `required`: its backward needs it anyway.
- A machine's processor without a type is of none, and cannot run a task with times by type.
- Samples of a stream are listed one after the other, each with all its tasks in the listed order.
"""

import math
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction


@dataclass(frozen=True)
class Task:
    """One task: what it takes, reads and writes, and how often it may run."""

    time: float
    reads: tuple = ()
    writes: tuple = ()
    workspace: int = 0
    in_place: bool = False
    required: bool = True
    recomputable: bool = True
    once: bool = False
    parallel: dict | None = None
    on: tuple | None = None  # the processors on which it may run; None: any
    times: dict | None = None  # of each type of processor that can run it; None: `time` on any
    side: str = ""  # "forward" or "backward": one of each may run at once
    spared: dict = field(default_factory=dict)  # by type of processor, how much less two at once take, at most
    parts: tuple = ()  # of a collective: (reads, writes, memory or None) for each processor of its run
    busy: bool = False  # whether a collective occupies these processors
    sent: int = 0  # bytes that a collective sends from each of its memories to the next, where that is known


@dataclass(frozen=True)
class Graph:
    """A task graph; `inputs` and `outputs` are (value, memory) pairs, `pinned` a set of values."""

    tasks: dict
    values: dict
    inputs: list = field(default_factory=list)
    pinned: frozenset = frozenset()
    outputs: list = field(default_factory=list)
    static: int = 0
    placeable: frozenset = frozenset()  # inputs whose memories the schedule chooses, one to `copies` of them
    copies: int = 1
    most: dict = field(default_factory=dict)  # copies of those placeable inputs for which it is another number
    follows: dict = field(default_factory=dict)  # placeable inputs, and what has to lie in their places at the end


@dataclass(frozen=True)
class Link:
    """A directed connection; `channel` is the resource that a transfer occupies."""

    source: str
    target: str
    bandwidth: float | None
    latency: float
    channel: object
    delay: float = 0  # from when the channel is free until the data is there
    also: tuple = ()  # what a transfer occupies beside its channel

    def duration(self, size):
        """Return how long `size` bytes occupy the channel, an integer when it divides exactly."""
        if self.bandwidth is None:
            return self.latency
        return self.latency + ratio(size, self.bandwidth)


@dataclass(frozen=True)
class Machine:
    """Memories (name to capacity or None), processors (name to memory), links; speeds and types of processors."""

    memories: dict
    processors: dict
    links: list
    speeds: dict = field(default_factory=dict)
    types: dict = field(default_factory=dict)
    static: dict = field(default_factory=dict)  # bytes that lie in a memory throughout

    @property
    def first(self):
        """Name of the working memory, that of the first processor of speed 1: it is listed first here."""
        return next(iter(self.memories))

    def link(self, source, target):
        """Return the first link from source to target, or None."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)


def ratio(numerator, denominator):
    """Return the quotient, as an integer when both are integers and it is exact."""
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator % denominator == 0:
        return numerator // denominator
    return numerator / denominator


def run_time(task, processors, speed=1, kinds=()):
    """Return the time of `task` on that many processors: time / p^alpha / the speed of the slowest of them.

    Of a task with times by type it is that of the slowest of `kinds`, and None where one of them cannot run it.
    """
    if task.times is not None:
        if any(kind not in task.times for kind in kinds):
            return None
        task = replace(task, time=max(task.times[kind] for kind in kinds), times=None)
    time = _time_on(task, processors)
    if speed == 1:
        return time
    slower = time / speed
    return int(slower) if isinstance(time, int) and slower.is_integer() and slower < 2**53 else slower


def _time_on(task, processors):
    if processors == 1:
        return task.time
    alpha = task.parallel.get("alpha", 1)
    if alpha == int(alpha):
        alpha = int(alpha)  # keeps integers exact
    return ratio(task.time, processors**alpha)


# --- machine ----------------------------------------------------------------------------------------------------


def machine(document, budget=None):
    """Build the machine of an instance document.

    Parameters
    ----------
    document : dict
        An instance.
    budget : int or dict, optional
        Overrides a capacity: that of the working memory, of the quickest storage level of an adjoint, of all devices
        of a pipeline; a dictionary those of the memories that it names ("" is that same one, or all).

    Returns
    -------
    Machine
    """
    if document.get("machine") is not None:
        built, budgeted = read_machine(document["machine"]), 0
    elif document.get("storage"):
        built, budgeted = _storage_machine(document), 1  # memories as listed, the quickest level first
    elif document.get("cluster") is not None:
        ranks = (document.get("sharding") or {}).get("data", 1)
        built, budgeted = _cluster_machine(document["cluster"], ranks), slice(None)
    else:
        built, budgeted = Machine({"memory": None}, {"processor": "memory"}, []), 0
    for name, size in (budget if isinstance(budget, dict) else {"": budget}).items():
        if size is not None:
            chosen = (list(built.processors.values()) if document.get("cluster") else list(built.memories))[budgeted]
            for memory in [name] if name else [chosen] if isinstance(chosen, str) else chosen:
                built.memories[memory] = size
    return built


def read_machine(document):
    """Read the `machine` object of an instance or of a schedule."""
    memories = {entry["name"]: entry.get("capacity") for entry in document["memories"]}
    first = next(iter(memories))
    processors, speeds, types = {}, {}, {}
    for entry in document.get("processors") or [{"name": "processor"}]:
        count = entry.get("count", 1)
        names = [entry["name"]] if count == 1 else [f"{entry['name']}{i}" for i in range(count)]
        for name in names:
            processors[name] = entry.get("memory", first)
            types[name] = entry.get("type") or ""
            if entry.get("speed", 1) != 1:
                speeds[name] = entry["speed"]
    links = []
    for number, entry in enumerate(document.get("links", [])):
        channel = entry.get("channel")
        if channel is None:
            channel = ("own channel of link", number)  # a tuple can be nobody else's name
        channel, *also = channel if isinstance(channel, list) else [channel]
        figures = _crossing(entry), entry.get("latency") or 0, channel, entry.get("delay") or 0
        links.append(Link(entry["source"], entry["target"], *figures, tuple(also)))
    static = {entry["name"]: entry["static"] for entry in document["memories"] if entry.get("static")}
    measured = [name for name in processors if name not in speeds]  # whose speed is 1
    working = processors[measured[0]]
    memories = {working: memories[working]} | memories
    processors = {measured[0]: working} | processors
    return Machine(memories, processors, links, speeds, types, static)


def _crossing(entry):
    """Return the bytes per time that cross a link: what is sent of them, and packing them, takes its time."""
    if entry.get("ratio", 1) == 1 and entry.get("codec") is None:
        return entry.get("bandwidth")
    sent = [Fraction(str(entry.get("ratio", 1))) / Fraction(str(entry["bandwidth"]))] if entry.get("bandwidth") else []
    packed = [1 / Fraction(str(entry["codec"]))] if entry.get("codec") else []
    time = sum(sent + packed)
    if time == 0:
        return None
    return int(1 / time) if (1 / time).denominator == 1 else float(1 / time)


def _storage_machine(document):
    """Build the machine of an adjoint from its checkpoint levels."""
    steps = _adjoint_steps(document)
    largest = max(step["state_size"] for step in steps)
    working = largest + max(step["adjoint_size"] for step in steps) + document.get("static_memory", 0)
    if _has_tape(document):
        working += max(step["tape_size"] for step in steps)
    memories, links = {"working": working}, []
    for level in sorted(document["storage"], key=lambda level: _there_and_back(level, largest)):
        name = level["name"]
        memories[name] = level["slots"] * largest if level.get("slots") is not None else level.get("capacity")
        channel = level.get("channel") or "processor"
        bandwidth = level.get("bandwidth")
        links.append(Link("working", name, bandwidth, level.get("write_time", 0), channel))
        links.append(Link(name, "working", bandwidth, level.get("read_time", 0), channel))
    return Machine(memories, {"processor": "working"}, links)


def _there_and_back(level, size):
    """Return what levels are sorted by: how long a state takes there and back, the capacity, the name."""
    ways = 0 if level.get("bandwidth") is None else 2 * size / level["bandwidth"]
    capacity = level["slots"] * size if level.get("slots") is not None else level.get("capacity")
    time = level.get("write_time", 0) + level.get("read_time", 0) + ways
    return time, math.inf if capacity is None else capacity, level["name"]


def _cluster_machine(cluster, ranks=1):
    """Build the machine of a pipeline: devices, and a link for every ordered pair of them.

    Of so many neighbours that are ranks only the first one is there, with a link to itself: the first level in which no
    group of ranks is torn apart is the way around all of them.
    """
    memories, types = {}, {}
    for entry in cluster["devices"]:
        count = entry.get("count", 1)
        for name in [entry["name"]] if count == 1 else [f"{entry['name']}{i}" for i in range(count)]:
            memories[name] = entry.get("memory")
            types[name] = entry.get("type") or entry["name"]
    links, count = [], len(memories)
    for other in [name for number, name in enumerate(memories) if number % ranks]:
        del memories[other], types[other]
    for a, source in enumerate(memories):
        for b, target in enumerate(memories):
            if a == b and ranks == 1:
                continue
            together = (
                [{a * ranks, b * ranks}]
                if a != b
                else [set(range(first, first + ranks)) for first in range(0, count, ranks)]
            )
            shared = [
                level
                for level in cluster.get("levels") or [{}]
                if level.get("devices") is None
                or all(len({device // level["devices"] for device in group}) == 1 for group in together)
            ]
            level = shared[0]
            figures = level.get("bandwidth"), level.get("latency") or 0
            held_up = {"overlap": (), "blocking": (source,)}.get(
                cluster.get("transfers") or "overlap", (source, target)
            )
            links.append(Link(source, target, *figures, f"{source}->{target}", level.get("delay") or 0, held_up))
    processors = {name: name for name in memories}
    if cluster.get("host") is not None:
        host = cluster["host"]
        memories["host"] = host.get("memory")
        for pair in [pair for name in processors for pair in ((name, "host"), ("host", name))]:
            figures = host.get("bandwidth"), host.get("latency") or 0
            links.append(Link(*pair, *figures, "->".join(pair), host.get("delay") or 0, ()))
    return Machine(memories, processors, links, types=types)


# --- task graph -------------------------------------------------------------------------------------------------


def lower(document, on=None, degrees=None):
    """Lower an instance document of any kind to its task graph.

    Parameters
    ----------
    document : dict
        An instance.
    on : Machine, optional
        The machine whose working memory holds inputs and outputs by default; the instance's own if omitted.
    degrees : list of int, optional
        Of a pipeline, for each layer: how many devices share every micro-batch.

    Returns
    -------
    Graph
    """
    first = (on or machine(document)).first
    if document["kind"] == "pipeline" and document.get("weights") == "fixed":
        return _each_sample(_lower_inference(document, on or machine(document)), document["micro_batches"])
    if document["kind"] == "pipeline":
        return _lower_pipeline(document, on or machine(document), degrees)
    if document["kind"] == "dag":
        graph = _lower_dag(document, on or machine(document))
        return graph if document.get("stream") is None else _each_sample(graph, document["stream"])
    if document["kind"] in ("chain", "join"):
        return {"chain": _lower_chain, "join": _lower_join}[document["kind"]](document, on or machine(document))
    return {"adjoint": _lower_adjoint, "tree": _lower_tree}[document["kind"]](document, first)


def _lower_chain(document, on):
    first = on.first
    stages = []
    for given in document["stages"]:
        stage = {
            "forward_time": given["forward_time"],
            "saving_time": given.get("saving_forward_time", given["forward_time"]),
            "backward_time": given["backward_time"],
            "output_size": given["output_size"],
            "saved_size": given.get("saved_size", 0),
            "gradient_size": given.get("gradient_size", given["output_size"]),
            "forward_workspace": given.get("forward_workspace", 0),
            "saving_workspace": given.get("saving_workspace", given.get("forward_workspace", 0)),
            "backward_workspace": given.get("backward_workspace", 0),
            "backward_reads": given.get("backward_reads", document.get("backward_reads", ["input", "output", "saved"])),
        }
        if given.get("variants"):
            own = {"saving_forward_time": "saving_time"}
            named = [{own.get(key, key): value for key, value in v.items()} for v in given["variants"]]
            stage["variants"] = [stage | variant for variant in named]
        stage["parameters"] = _parameters(given)
        stages += [stage] * given.get("repeat", 1)
    loss = document.get("loss") or {}
    input_size = document["input_size"]
    graph = _chain_graph(
        stages=stages,
        input_size=input_size,
        input_gradient_size=input_size if document.get("input_gradient", True) else 0,
        loss=Task(loss.get("time", 0), (f"x{len(stages)}",), (f"y{len(stages)}",), loss.get("workspace", 0), once=True),
        in_place=document.get("in_place", False),
        saving=True,
        inputs=[("x0", first)],
        first=first,
        static=document.get("static_memory", 0),
    )
    return _train(graph, document, stages, on)


def _parameters(stage):
    """Return what an update needs of a stage, or None for a stage without one."""
    size, state = stage.get("parameter_size", 0), stage.get("optimizer_size", 0)
    if size == state == 0:
        return None
    gradient = stage.get("parameter_gradient_size")
    gradient = size if gradient is None else gradient
    bucket = stage.get("bucket_size")
    return {
        "size": size,
        "gradient": gradient,
        "state": state,
        "time": stage.get("update_time", 0),
        "bucket": gradient if bucket is None else bucket,
        "workspace": bucket or 0,
    }


def _train(graph, document, stages, on):
    """Add parameters and their updates to a chain, as one of several ranks has them."""
    first = on.first
    tasks, values, inputs, outputs = dict(graph.tasks), dict(graph.values), list(graph.inputs), list(graph.outputs)
    at = {"w": document.get("parameter_memory") or first, "o": document.get("optimizer_memory") or first}
    follows = {}
    ranks, zero, full = 1, 0, 0
    if document.get("sharding"):
        ranks, zero = document["sharding"]["data"], document["sharding"].get("zero", 0)
        full = document["sharding"].get("bucket", 0)
    exchanged = []
    for i, stage in enumerate(stages, 1):
        needs = stage["parameters"]
        if needs is None:
            continue
        size, gradient, state = needs["size"], needs["gradient"], needs["state"]
        shares = _shares({"w": size, "g": gradient, "o": state}, ranks, zero)
        for letter, bytes_ in (("w", size), ("o", state)):
            if bytes_ > 0:
                values |= {f"{letter}{i}": shares[letter], f"n{letter}{i}": shares[letter]}
                if at[letter] == "any" and "any" not in on.memories:
                    follows[f"{letter}{i}"] = f"n{letter}{i}"
                    continue
                inputs.append((f"{letter}{i}", at[letter]))
                outputs.append((f"n{letter}{i}", at[letter]))
        values[f"g{i}"] = shares["g"]
        used = f"f{i}" if zero == 3 else f"w{i}"
        reduced = ranks > 1 and (gradient > 0 or (zero > 1 and needs["bucket"] > 0))
        made = f"b{i}" if reduced and zero > 1 else f"g{i}"
        for name, task in list(tasks.items()):
            match = re.fullmatch(rf"(F|Fe|B){i}(\.\d+)?", name)
            if match and size > 0:
                task = replace(task, reads=(*task.reads, used))
            if match and match[1] == "B":
                room = task.workspace + (needs["workspace"] if made == f"g{i}" else 0)
                task = replace(task, writes=(*task.writes, made), workspace=room)
            tasks[name] = task
        if reduced:
            values |= {f"b{i}": needs["bucket"]} if zero > 1 else {f"r{i}": 0}
            exchanged.append((i, needs["bucket"] if zero > 1 else gradient))
        reads = {f"g{i}"}
        reads |= {f"o{i}"} if state > 0 else set()
        reads |= {f"r{i}"} if reduced and zero < 2 else set()
        if size > 0 and not (document.get("master_copy", False) and state > 0):
            reads.add(f"w{i}")
        new = [f"no{i}"] if state > 0 else []
        if size > 0 and zero in (1, 2):
            values[f"p{i}"] = -(-size // ranks)
            new.append(f"p{i}")
            tasks[f"P{i}"] = around(on, ranks, size, [f"p{i}"], [f"nw{i}"])
        elif size > 0:
            new.append(f"nw{i}")
        if size > 0 and zero == 3:
            values[f"f{i}"] = size
            gather = around(on, ranks, size, [f"w{i}"], [f"f{i}"])
            tasks[f"P{i}"] = replace(gather, once=False, required=False)
        time = ratio(needs["time"], ranks) if zero else needs["time"]
        tasks[f"U{i}"] = Task(time, tuple(sorted(reads)), tuple(new), in_place=True, once=True)
    while exchanged:
        together = [exchanged.pop()]
        while exchanged and sum(bytes_ for _, bytes_ in together) < full:
            together.append(exchanged.pop())
        size = sum(bytes_ for _, bytes_ in together)
        pair = ("b", "g") if zero > 1 else ("g", "r")
        reads, made = ([f"{letter}{i}" for i, _ in together] for letter in pair)
        tasks[f"A{together[-1][0]}"] = around(on, ranks, size, reads, made, twice=zero == 0)
    free = frozenset(follows)
    return Graph(tasks, values, inputs, graph.pinned, outputs, graph.static, free, follows=follows)


def of_layer(layer):
    """Return the bytes of a layer's parameters, their gradients and the optimizer's states."""
    size, gradient = layer.get("parameter_size", 0), layer.get("parameter_gradient_size")
    return {"w": size, "g": size if gradient is None else gradient, "o": layer.get("optimizer_size", 0)}


def _shares(sizes, ranks, zero, but=""):
    """Return what one rank has of a stage; what is shared out is rounded up as one string of bytes."""
    shared = [letter for since, letter in ((3, "w"), (2, "g"), (1, "o")) if zero >= since and letter != but]
    found, before = dict(sizes), 0
    for letter in shared:
        until = before + sizes[letter]
        found[letter] = math.ceil(Fraction(until, ranks)) - math.ceil(Fraction(before, ranks))
        before = until
    return found


def around(on, ranks, size, reads, made, twice=False, place=None):
    """Return a collective as one of so many ranks sees it: ranks - 1 rounds, or twice as many."""
    place = place or next(iter(on.processors.values()))
    link = on.link(place, place)
    rounds = (ranks - 1) * (2 if twice else 1)
    time = 0 if link is None else link.latency + link.delay
    if link is not None and link.bandwidth is not None:
        time += ratio(size, ranks * link.bandwidth)
    parts = ((tuple(reads), tuple(made), place),)
    sent = math.ceil(Fraction(size * (ranks - 1), ranks)) * (2 if twice else 1)
    return Task(rounds * time, tuple(reads), tuple(made), once=True, parts=parts, sent=sent)


def _chain_graph(*, stages, input_size, input_gradient_size, loss, in_place, saving, inputs, first, static):
    """Build F, Fe, B and loss over x, s and y; `saving` says whether Fe and s exist."""
    values, tasks = {"x0": input_size}, {}
    for i, stage in enumerate(stages, 1):
        values[f"x{i}"] = stage["output_size"]
        tasks[f"F{i}"] = Task(
            stage["forward_time"],
            (f"x{i - 1}",),
            (f"x{i}",),
            stage["forward_workspace"],
            in_place=in_place,
            required=False,
        )
        for dot, way in _ways(stage) if saving else []:
            values[f"s{i}{dot}"] = way["saved_size"]
            tasks[f"Fe{i}{dot}"] = Task(
                way["saving_time"],
                (f"x{i - 1}",),
                (f"x{i}", f"s{i}{dot}"),
                way["saving_workspace"],
                in_place=in_place,
                required=False,
            )
    tasks["loss"] = Task(loss.time, loss.reads, loss.writes, loss.workspace, in_place=in_place, once=True)
    values["y0"] = input_gradient_size
    for i, stage in reversed(list(enumerate(stages, 1))):
        values[f"y{i}"] = stage["gradient_size"]
        for dot, way in _ways(stage):
            named = {"input": f"x{i - 1}", "output": f"x{i}", "saved": f"s{i}{dot}"}
            reads = [f"y{i}"] + [named[kind] for kind in named if kind in way["backward_reads"]]
            tasks[f"B{i}{dot}"] = Task(
                way["backward_time"],
                tuple(reads),
                (f"y{i - 1}",),
                way["backward_workspace"],
                in_place=in_place,
                required=not dot,
                recomputable=not dot,
                once=not dot,
            )
    return Graph(tasks, values, inputs, frozenset(), [("y0", first)], static)


def _ways(stage):
    """Return (suffix of the names, figures) of each variant of a stage; no suffix where there is one way only."""
    variants = stage.get("variants") or [stage]
    if len(variants) == 1:
        return [("", variants[0])]
    return [(f".{number}", variant) for number, variant in enumerate(variants, 1)]


def _adjoint_steps(document):
    """Return one full dictionary per step, instance-wide figures filled in."""
    given = document["steps"]
    steps = [{} for _ in range(given)] if isinstance(given, int) else given
    keys = ("forward_time", "backward_time", "state_size", "adjoint_size", "tape_size", "tape_time")
    common = {key: document[key] for key in keys if document.get(key) is not None}
    full = []
    for step in steps:
        step = common | {key: value for key, value in step.items() if value is not None}
        # The defaults follow the step's own figures, not those of the instance.
        step.setdefault("adjoint_size", step["state_size"])
        step.setdefault("tape_size", 0)
        step.setdefault("tape_time", step.get("forward_time"))
        full.append(step)
    return full


def _has_tape(document):
    per_step = document["steps"] if isinstance(document["steps"], list) else []
    return any(owner.get("tape_size") is not None for owner in [document, *per_step])


def _lower_adjoint(document, first):
    steps = _adjoint_steps(document)
    tape = _has_tape(document)
    # Step i ends in x_{i+1}: that is the state of the step after it; the last one exists only with a tape.
    followers = steps[1:] + ([steps[-1]] if tape else [])
    stages = [
        {
            "forward_time": step.get("forward_time"),
            "saving_time": step["tape_time"],
            "backward_time": step["backward_time"],
            "output_size": after["state_size"],
            "saved_size": step["tape_size"],
            "gradient_size": after["adjoint_size"],
            "forward_workspace": 0,
            "saving_workspace": 0,
            "backward_workspace": 0,
            "backward_reads": ["saved"] if tape else ["input"],
        }
        for step, after in zip(steps, followers, strict=False)
    ]
    inputs = [("x0", first)]
    initial = document.get("initial_state", "live")
    if initial != "live":
        inputs.append(("x0", initial))
    last = len(stages)
    return _chain_graph(
        stages=stages,
        input_size=steps[0]["state_size"],
        input_gradient_size=steps[0]["adjoint_size"],
        loss=Task(0 if tape else steps[-1]["backward_time"], (f"x{last}",), (f"y{last}",)),
        in_place=True,
        saving=tape,
        inputs=inputs,
        first=first,
        static=document.get("static_memory", 0),
    )


def _lower_dag(document, on):
    first = on.first
    own = machine(document)
    free = {} if "any" in own.memories else _placed_by_the_schedule(document)
    values = {value["id"]: value["size"] for value in document.get("values", [])}
    tasks = {}
    for given in document["tasks"]:
        writes = given.get("writes", [])
        if "size" in given:
            values[given["id"]] = given["size"]
            writes = [given["id"]]
        parts = tuple(
            (tuple(part.get("reads", [])), tuple(part.get("writes", [])), part.get("memory"))
            for part in given.get("parts") or []
        )
        reads = given.get("reads", [])
        if parts:
            reads, writes = ([name for part in parts for name in part[which]] for which in (0, 1))
        tasks[given["id"]] = Task(
            _least_time(given, on),
            tuple(dict.fromkeys(reads)),
            tuple(dict.fromkeys(writes)),
            given.get("workspace", 0),
            given.get("in_place", False),
            given.get("required", True),
            given.get("recomputable", True),
            given.get("once", False),
            given.get("parallel"),
            on=given.get("on") and tuple(given["on"]),
            times=given["time"] if isinstance(given["time"], dict) else None,
            parts=parts,
            busy=given.get("busy", False),
        )

    def located(entries):
        if free:
            entries = [entry for entry in entries if isinstance(entry, str) or entry.get("memory") != "any"]
        return [
            (entry, first) if isinstance(entry, str) else (entry["value"], entry.get("memory") or first)
            for entry in entries
        ]

    return Graph(
        tasks,
        values,
        located(document.get("inputs", [])),
        frozenset(document.get("pinned_inputs", [])) - set(free),
        located(document.get("outputs", [])),
        document.get("static_memory", 0),
        frozenset(free),
        max(free.values(), default=1),
        free,
    )


def _each_sample(graph, samples):
    """Return the graph of so many samples: task t of sample m is ``t.m``; what is there at the start serves all."""
    staying = {value for value, _ in graph.inputs} | graph.placeable
    values = {name: size for name, size in graph.values.items() if name in staying}
    tasks = {}

    def of(names, m):
        return tuple(name if name in staying else f"{name}.{m}" for name in names)

    for m in range(samples):
        values |= {f"{name}.{m}": size for name, size in graph.values.items() if name not in staying}
        for name, task in graph.tasks.items():
            tasks[f"{name}.{m}"] = replace(task, reads=of(task.reads, m), writes=of(task.writes, m))
    return replace(graph, tasks=tasks, values=values)


def _placed_by_the_schedule(document):
    """Return the inputs that lie where the schedule says, and in how many memories each may."""
    entries = [entry for entry in document.get("inputs", []) if isinstance(entry, dict)]
    return {entry["value"]: entry.get("copies", 1) for entry in entries if entry.get("memory") == "any"}


def _least_time(given, on):
    """Return the time of a task; of times by type the least of those on which it may run."""
    if not isinstance(given["time"], dict):
        return given["time"]
    able = [on.types.get(name, "") for name in given.get("on") or on.processors if name in on.processors]
    times = [given["time"][kind] for kind in able if kind in given["time"]]
    return min(times or given["time"].values())


def _lower_tree(document, first):
    parent = document["parent"]
    n = len(parent)
    workspace = document.get("workspace") or [0] * n
    time = document.get("time") or [1] * n
    parallel = document.get("parallel")
    if not isinstance(parallel, list):
        parallel = [parallel] * n
    children = [[] for _ in range(n)]
    for i, above in enumerate(parent):
        if above != -1:
            children[above].append(f"v{i}")
    inward = document.get("orientation", "in") == "in"
    tasks = {}
    for i in range(n):
        own, below = (f"v{i}",), tuple(children[i])
        reads, writes = (below, own) if inward else (own, below)
        tasks[f"T{i}"] = Task(time[i], reads, writes, workspace[i], once=True, parallel=parallel[i])
    roots = [(f"v{i}", first) for i in range(n) if parent[i] == -1]
    return Graph(
        tasks,
        {f"v{i}": size for i, size in enumerate(document["output_size"])},
        [] if inward else roots,
        frozenset(),
        roots if inward else [],
        document.get("static_memory", 0),
    )


def _lower_inference(document, on):
    """Return the graph of one micro-batch that only goes forwards."""
    layers = [given for given in document["layers"] for _ in range(given.get("repeat", 1))]
    edges = _edges(document["layers"])
    values, tasks, placeable = {}, {}, set()
    for number, layer in enumerate(layers, 1):
        values[f"x{number}"] = layer.get("output_size", 0)
        reads = [f"x{source}" for source, reader in edges if reader == number]
        if layer.get("parameter_size"):
            values[f"w{number}"] = layer["parameter_size"]
            placeable.add(f"w{number}")
            reads.append(f"w{number}")
        given = layer["forward_time"]
        by_type = given if isinstance(given, dict) else None
        least = min(given[kind] for kind in on.types.values() if kind in given) if by_type else given
        workspace = layer.get("forward_workspace", 0)
        tasks[f"F{number}"] = Task(least, tuple(reads), (f"x{number}",), workspace, times=by_type)
    return Graph(tasks, values, placeable=frozenset(placeable), copies=document.get("copies", 1))


def _lower_pipeline(document, on, degrees):
    layers = [given for given in document["layers"] for _ in range(given.get("repeat", 1))]
    values, tasks, placeable = {}, {}, []
    edges = _edges(document["layers"])
    for number, layer in enumerate(layers, 1):
        sizes = of_layer(layer)
        shares = sizes
        if document.get("sharding"):
            zero, keep = document["sharding"].get("zero", 0), document["sharding"].get("keep", False)
            shares = _shares(sizes, document["sharding"]["data"], zero, "g" if keep else "")
        there = {f"{letter}{number}": shares[letter] for letter in "wgo" if sizes[letter] > 0}
        values |= there
        placeable += there
        if document.get("sharding") and (zero < 2 or keep) and layer.get("bucket_size"):
            layers[number - 1] = layer | {
                "backward_workspace": layer.get("backward_workspace", 0) + layer["bucket_size"]
            }
    cut = (document.get("tokens") or {}).get("cut")
    degrees = degrees or [1] * len(layers)
    for batch in range(document["micro_batches"] if max(degrees) > 1 else 0):
        for number, layer in enumerate(layers, 1):
            own = layer if degrees[number - 1] == 1 else _shared(document, number, degrees[number - 1])
            for part in range(degrees[number - 1]):
                made, done = _lower_layer(document, own, (number, edges), batch, on, (part, degrees))
                values |= made
                tasks |= {
                    name: replace(task, reads=tuple(v for v in task.reads if v[0] not in "wg" or v in placeable))
                    for name, task in done.items()
                }
    for batch in range(document["micro_batches"] if max(degrees) == 1 else 0):
        for number, layer in enumerate(layers if cut is None else _sliced(document, batch), 1):
            made, done = _lower_layer(document, layer, (number, edges), batch, on)
            if cut is not None:
                _chain_slices(made, done, layer, (number, batch), len(cut))
            values |= made
            tasks |= {
                name: replace(task, reads=tuple(v for v in task.reads if v[0] not in "wg" or v in placeable))
                for name, task in done.items()
            }
    return Graph(
        tasks,
        values,
        static=document.get("static_memory", 0),
        placeable=frozenset(placeable),
        copies=document.get("copies", 1),
    )


WORK = (
    *("forward_time", "backward_time", "weight_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace", "cache_gradient_size"),
)


def _shared(document, number, degree):
    """Return a layer with the times and sizes of one of so many parts of a micro-batch."""
    (row,) = [part for part in document["parts"] if part["samples"] * degree == document["samples"]]
    index = [k for k, layer in enumerate(document["layers"]) for _ in range(layer.get("repeat", 1))][number - 1]
    layer = document["layers"][index]
    return {key: value for key, value in layer.items() if key not in (*WORK, "paired_time")} | row["layers"][index]


def _pieces(size, degrees, ends, batch, mine):
    """Cut what passes between layers, the first of which makes it, into pieces of each micro-batch.

    Returns the numbers of the pieces that the part `mine` = (part, of) of a layer has, and the sizes of all those that
    one part of the first layer makes.
    """
    every = math.lcm(*(degrees[layer - 1] for layer in ends))
    each = every // degrees[ends[0] - 1]
    part, of = mine
    numbers = [
        batch * every + k
        for k in range(every)
        if Fraction(part, of) <= Fraction(k, every) and Fraction(k + 1, every) <= Fraction(part + 1, of)
    ]
    return numbers, [size // each + (1 if k < size % each else 0) for k in range(each)]


def _sliced(document, batch):
    """Return the layers, repeats one by one, with the times and sizes of the slice that a micro-batch is."""
    tokens, number = document["tokens"], batch % len(document["tokens"]["cut"])
    size, before = tokens["cut"][number], sum(tokens["cut"][:number])
    (row,) = [one for one in tokens["slices"] if one["tokens"] == size and one.get("before", 0) == before]
    found = []
    for layer, work in zip(document["layers"], row["layers"], strict=True):
        kept = {key: value for key, value in layer.items() if key not in WORK and key != "paired_time"}
        found += [kept | work] * layer.get("repeat", 1)
    return found


def _chain_slices(values, tasks, layer, place, slices):
    """Let a slice's tasks of a layer read those of others of its sequence, as docs/pipelines.md says."""
    number, batch = place
    mine, first, last = batch % slices, batch - batch % slices, slices - 1
    fore, back = f"Fe{number}.{batch}", f"B{number}.{batch}"
    earlier = tuple(f"s{number}.{first + j}" for j in range(mine))
    sums = tuple(f"c{number}.{first + j}" for j in range(min(mine + 1, last)))
    tasks[fore] = replace(tasks[fore], reads=(*tasks[fore].reads, *earlier))
    reads, writes = (*tasks[back].reads, *earlier), tasks[back].writes
    if mine < last:
        values[f"c{number}.{batch}"] = layer.get("cache_gradient_size", 0)
        reads += (*sums, f"q{number}.{batch + 1}")
    else:
        writes += sums
    if mine > 0:
        values[f"q{number}.{batch}"] = 0
        writes += (f"q{number}.{batch}",)
    tasks[back] = replace(tasks[back], reads=reads, writes=writes)


def _edges(layers):
    """Return (layer, one that reads its output) for all layers, counted from 1, repeats one by one."""
    edges, named, number = [], {}, 0
    for layer in layers:
        read = layer.get("reads", ["previous"])
        edges += [(number if name == "previous" else named[name], number + 1) for name in read]
        count = layer.get("repeat", 1)
        edges += [(number + k, number + k + 1) for k in range(1, count)]
        number += count
        named[layer.get("name")] = number
    return [edge for edge in edges if edge[0] > 0]


def _lower_layer(document, layer, place, batch, on, shared=None):
    """Return values and tasks of one layer and micro-batch, or of one part of it: `shared` = (part, degrees)."""
    number, edges = place
    part, degrees = shared or (0, [1] * max([number, *(reader for _, reader in edges)]))
    mine = (part, degrees[number - 1])

    def name(letter):
        return f"{letter}{number}.{batch * mine[1] + part}"

    weight = layer.get("weight_time", 0)
    halves = weight != 0
    saved, kept = layer.get("saved_size", 0), layer.get("weight_saved_size", 0)
    both = min(saved, kept) if halves else 0
    values = {name("s"): saved - both}
    if halves:
        values |= {name("v"): both, name("e"): kept - both}

    def out(own, size=0):
        ends = [own, *(reader for source, reader in edges if source == own)]
        numbers, sizes = _pieces(size, degrees, ends, batch, mine)
        return [f"x{own}.{k}" for k in numbers], sizes

    def back(edge, size=0):
        own, reader = edge
        numbers, sizes = _pieces(size, degrees, edge, batch, mine)
        return [f"y{own}.{k}" if reader == own + 1 else f"y{own}.{reader}.{k}" for k in numbers], sizes

    outputs, sizes = out(number, layer.get("output_size", 0))
    values |= dict(zip(outputs, sizes, strict=True))
    gradient = layer.get("gradient_size")
    given_back = []  # none of the last: the loss belongs to it
    for edge in edges:
        if edge[0] == number:
            names, sizes = back(edge, layer.get("output_size", 0) if gradient is None else gradient)
            values |= dict(zip(names, sizes, strict=True))
            given_back += names

    entry = [value for own, reader in edges if reader == number for value in out(own)[0]]
    leave = [value for edge in edges if edge[1] == number for value in back(edge)[0]]
    extra = layer.get("backward_reads")
    extra = document.get("backward_reads") if extra is None else extra
    extra = ["input", "output"] if extra is None else extra
    reads = [name("s"), f"w{number}"]
    reads += [name("v")] if halves else [f"g{number}"]
    reads += given_back
    reads += entry if "input" in extra else []
    reads += outputs if "output" in extra else []
    writes = [*outputs, name("s"), *([name("v")] if halves else [])]
    leave += [name("e")] if halves else []

    tasks = {
        name("Fe"): Task(0, (*entry, f"w{number}"), tuple(writes), layer.get("forward_workspace", 0), required=False),
        name("B"): Task(0, tuple(reads), tuple(leave), layer.get("backward_workspace", 0), once=True),
    }
    tasks[name("Fe")] = replace(tasks[name("Fe")], side="forward")
    tasks[name("B")] = replace(tasks[name("B")], side="backward")
    given = {name("Fe"): layer["forward_time"], name("B"): layer["backward_time"]}
    if halves:
        tasks[name("W")] = Task(
            0, (name("v"), name("e"), f"g{number}"), workspace=layer.get("backward_workspace", 0), once=True
        )
        given[name("W")] = weight
    able = set(on.types.values())
    together = layer.get("paired_time")
    if together is not None:
        spared = {}
        for kind in able:
            whole = [layer["forward_time"], layer["backward_time"], weight, together]
            *apart, at_once = [time.get(kind) if isinstance(time, dict) else time for time in whole]
            if at_once is not None and None not in apart:
                spared[kind] = max(0, sum(apart) - at_once)
        tasks[name("Fe")] = replace(tasks[name("Fe")], spared=spared)
        tasks[name("B")] = replace(tasks[name("B")], spared=spared)
    for time in (layer["forward_time"], layer["backward_time"], weight):
        able &= set(time) if isinstance(time, dict) else able
    for task, time in given.items():
        by_type = {kind: time[kind] if isinstance(time, dict) else time for kind in able}
        least = min(by_type.values(), default=0)
        typed = any(isinstance(other, dict) for other in (layer["forward_time"], layer["backward_time"], weight))
        tasks[task] = replace(tasks[task], time=least, times=by_type if typed else None)
    return values, tasks


# --- joins --------------------------------------------------------------------------------------------------------


def _lower_join(document, on):
    """Lower each chain by itself, number its names, and put one loss in the place of theirs."""
    shared = {key: document[key] for key in ("in_place", "backward_reads", "input_gradient") if key in document}
    values, inputs, outputs, forwards, backwards = {}, [], [], {}, {}
    loss = document.get("loss") or {}
    reads, writes = [], []
    for j, chain in enumerate(document["chains"], 1):
        graph = _lower_chain(chain | shared | {"kind": "chain"}, on)

        def numbered(name, j=j):
            letters = name.rstrip("0123456789.")
            return f"{letters}{j}.{name[len(letters) :]}"

        values |= {numbered(name): size for name, size in graph.values.items()}
        inputs += [(numbered(name), memory) for name, memory in graph.inputs]
        outputs += [(numbered(name), memory) for name, memory in graph.outputs]
        for name, task in graph.tasks.items():
            read, written = tuple(map(numbered, task.reads)), tuple(map(numbered, task.writes))
            if name == "loss":
                reads += read
                writes += written
                continue
            part = backwards if name.startswith("B") else forwards
            part[numbered(name)] = replace(task, reads=read, writes=written)
    met = Task(loss.get("time", 0), tuple(reads), tuple(writes), loss.get("workspace", 0))
    met = replace(met, in_place=document.get("in_place", False), once=True)
    tasks = forwards | {"loss": met} | backwards
    return Graph(tasks, values, inputs, frozenset(), outputs, document.get("static_memory", 0))
