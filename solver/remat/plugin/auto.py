"""The table behind `auto`: which algorithms it asks for which problem, and in which order.

`remat.solving.portfolio` asks them (docs/auto.md shows the table too): first the rows that take next to no time, and
often settle a problem, then all algorithms that are marked as cheap for the kind, then the other rows, each with its
share of the time, until something is proved. Where none of them finds a schedule, the rest of the zoo is asked as well.

Every family keeps its rows current; a row names the first algorithm of its list that is available. Where many budgets
are asked about (sweeps, questions), a row may name one algorithm that answers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.plugin import registry

if TYPE_CHECKING:
    from remat.plugin.problem import Problem


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; every row that applies is asked, in this order, until something is proved.

    Attributes
    ----------
    kind, when : str
        When the row applies, in words.
    algorithms : tuple of str
        The first one that is available is asked.
    applies : callable
    many : tuple of str
        Who answers alone where many budgets or batches are asked about.
    first : bool
        Whether the row is asked before the algorithms that are marked as cheap: it takes next to no time, and where it
        proves its answer, makes them superfluous. Where it does not, all others are asked as well.
    options : mapping
        Options of the algorithm.
    free : bool
        Whether it looks for another order of the tasks; it is asked last where they must keep the listed one.
    """

    kind: str
    when: str
    algorithms: tuple[str, ...]
    applies: Callable[[Problem], bool]
    many: tuple[str, ...] = ()
    first: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    free: bool = False


MOST_OFFLOADED = 200
"""Chains of more stages leave `remat-offload-best` no time beyond its first starts."""

MOST_TASKS_OFFLOADED = 20_000
"""Graphs of more tasks leave `dag-offload-best` no time beyond its first starts."""


def _always(problem: Problem) -> bool:
    return True


MOST_STAGES = 1000
"""Chains of more stages are solved by groups of these first."""

MOST_IN_TABLES = 2500
"""Stages up to which `rotor` answers as well; beyond, its tables would take gigabytes."""


def _one_saving_forward(problem: Problem) -> bool:
    """Whether a chain's stages have no variants, and are not too many to search further than `rotor`."""
    return _no_variants(problem) and problem.chain.length <= MOST_STAGES


def _long(problem: Problem) -> bool:
    return _no_variants(problem) and problem.chain.length > MOST_STAGES


def _no_variants(problem: Problem) -> bool:
    if _has_parameters(problem):
        return False
    chain = problem.chain
    return len(problem.graph.tasks) == (3 if chain.saves else 2) * chain.length + 1


def _way_out(problem: Problem) -> bool:
    """Whether values can leave the processor's memory and come back."""
    machine = problem.machine
    device = machine.processors[0].memory
    out = {link.target for link in machine.links if link.source == device} - {device}
    back = {link.source for link in machine.links if link.target == device}
    return bool(out & back)


def _offloads(problem: Problem) -> bool:
    """Whether values can leave, and the chain is one for `chain-best` and not too long."""
    alone = problem.machine.processors[0].memory == 0 and _way_out(problem) and not _has_parameters(problem)
    return alone and _one_saving_forward(problem) and problem.chain.length <= MOST_OFFLOADED


def _other_offloads(problem: Problem) -> bool:
    """Whether values can leave, and the chain is no longer than `dag-offload-best` can look at, but none for others."""
    plain = not problem.graph.placeable and not problem.graph.parts and not _is_stream(problem)
    return plain and _moderate_way_out(problem) and not _offloads(problem)


def _moderate_way_out(problem: Problem) -> bool:
    return _way_out(problem) and len(problem.graph.tasks) <= MOST_TASKS_OFFLOADED


def _large_way_out(problem: Problem) -> bool:
    return _way_out(problem) and not _moderate_way_out(problem)


def _no_moderate_way_out(problem: Problem) -> bool:
    return not _moderate_way_out(problem)


def _uniform_adjoint(problem: Problem) -> bool:
    return problem.instance.has_equal_steps


def _shared_equal_sizes(problem: Problem) -> bool:
    chain = problem.chain
    sizes = {*chain.activation_size.tolist(), *chain.gradient_size.tolist()}
    simple = len(problem.machine.memories) == 1 and len(sizes) == 1 and not chain.saves
    return simple and (_uniform_adjoint(problem) or _moderate_table(problem))


def _levels(problem: Problem) -> bool:
    """Whether a table over levels, slots and steps pays, and takes no more than seconds."""
    chain, machine = problem.chain, problem.machine
    levels = machine.memories[1:]
    if not levels or chain.saves or not _uniform_adjoint(problem) or chain.length == 0:
        return False
    links = [machine.links[link] for link in machine.link_index.values()]
    synchronous = all(resource == 0 for resource in machine.resource_of_link)
    starred = all({(0, k), (k, 0)} <= machine.link_index.keys() for k in range(1, len(machine.memories)))
    costly = any(link.latency or link.bandwidth is not None for link in links)
    state = max(1, int(chain.activation_size.max()))
    room = [chain.length if m.capacity is None else min(chain.length, m.capacity // state) for m in levels]
    work = chain.length**2 * (sum(room) + 1)
    return synchronous and starred and any(room) and (costly or len(levels) > 1) and work <= 2e10


MODERATE_STEPS = 2000
"""Most steps whose best schedule is searched for with all means."""


def _one_free_level(problem: Problem) -> bool:
    """Whether equal steps have one place for checkpoints that cost nothing: then Revolve's closed form says it all."""
    machine, chain = problem.machine, problem.chain
    free = not any(link.latency or link.bandwidth is not None for link in machine.links)
    return _uniform_adjoint(problem) and len(machine.memories) == 2 and free and not chain.saves


def _uniform_otherwise(problem: Problem) -> bool:
    return _uniform_adjoint(problem) and not _one_free_level(problem)


def _beside(problem: Problem) -> bool:
    """Whether equal steps have storage whose transfers overlap with them and take time."""
    machine = problem.machine
    links = zip(machine.links, machine.resource_of_link, strict=True)
    overlap = any(resource != 0 and (link.latency or link.bandwidth is not None) for link, resource in links)
    return _uniform_adjoint(problem) and overlap


def _levels_without_table(problem: Problem) -> bool:
    """Whether equal steps have several levels, and a table over them does not pay, or does not apply."""
    several = len(problem.machine.memories) > 2 and not problem.chain.saves and not _starts_elsewhere(problem)
    return _uniform_adjoint(problem) and several and not _levels(problem)


def _long_levels(problem: Problem) -> bool:
    return _levels_without_table(problem) and not any(problem.machine.resource_of_link)


def _moderate_beside(problem: Problem) -> bool:
    """Whether there is more than slots to choose, and it is looked for within seconds."""
    moderate = MOST_PARKED < problem.chain.length < MOST_BESIDE
    return _beside(problem) and moderate and not _starts_elsewhere(problem)


def _alone(problem: Problem) -> bool:
    return _one_processor(problem) and not problem.machine.links


def _not_alone(problem: Problem) -> bool:
    return not _alone(problem)


def _slots_of_one_size(problem: Problem) -> bool:
    """Whether states of one size go to one level, beside computing, in a table of moderate size."""
    chain, machine = problem.chain, problem.machine
    sizes = set(chain.activation_size.tolist())
    alone = len(machine.memories) == 2 and not chain.saves and not any(machine.resource_of_link)
    return alone and len(sizes) == 1 and _moderate_table(problem)


def _searchable(problem: Problem) -> bool:
    return problem.chain.length < MODERATE_STEPS and problem.machine.processors[0].memory == 0


def _many_own_steps(problem: Problem) -> bool:
    elsewhere, uniform = _starts_elsewhere(problem), _uniform_adjoint(problem)
    return problem.chain.length >= MODERATE_STEPS and not elsewhere and not uniform


def _starts_elsewhere(problem: Problem) -> bool:
    return problem.machine.processors[0].memory != 0


def _moderate_table(problem: Problem) -> bool:
    """Whether a table over (steps x steps x slots) takes no more than seconds and 2 GB."""
    chain, machine = problem.chain, problem.machine
    state = max(1, int(chain.activation_size.max()))
    capacity = machine.memories[-1 if len(machine.memories) == 1 else 1].capacity
    slots = chain.length if capacity is None else min(chain.length, capacity // state)
    work = chain.length**2 * (slots + 2)
    return slots >= 1 and chain.length * work <= 4e9 and 8 * work <= 2e9


def _fits_whole(problem: Problem) -> bool:
    """Whether all states fit at once, into the storage or into the one memory; then nothing is recomputed."""
    chain, machine = problem.chain, problem.machine
    states = chain.activation_size.tolist()
    if len(machine.memories) > 1:
        capacity = machine.memories[1].capacity
        times = [machine.links[link].latency for link in machine.link_index.values()]
        free = not any(times) and all(link.bandwidth is None for link in machine.links)
        # Where checkpoints cost time, fewer of them may be quicker than none recomputed.
        return free and not chain.saves and (capacity is None or sum(states[:-1]) <= capacity)
    if problem.budget is None:
        return not chain.saves
    gradient = max(0, int(chain.gradient_size.max()) - min(states))
    return not chain.saves and chain.static_memory + sum(states) + gradient <= problem.budget


def _nothing_to_free(problem: Problem) -> bool:
    """Whether all values fit at once; `dag-auto` itself keeps everything wherever its order allows that."""
    graph, budget = problem.graph, problem.budget
    everything = graph.static_memory + sum(graph.size.tolist()) + max(graph.workspace.tolist(), default=0)
    return budget is None or everything <= budget


def _has_parameters(problem: Problem) -> bool:
    return problem.instance.has_parameters


def _parameters_and_memories(problem: Problem) -> bool:
    return _has_parameters(problem) and len(problem.machine.memories) > 1 and not _is_stream(problem)


def _ranks_or_open(problem: Problem) -> bool:
    """Whether ranks share parameters out, these may lie anywhere, or steps follow each other without end."""
    graph = problem.graph
    return _has_parameters(problem) and bool(graph.parts or graph.placeable or _is_stream(problem))


def _endless_and_memories(problem: Problem) -> bool:
    return _has_parameters(problem) and len(problem.machine.memories) > 1 and _is_stream(problem)


def _open_places(problem: Problem) -> bool:
    return _has_parameters(problem) and bool(problem.graph.placeable)


def _plain_parameters(problem: Problem) -> bool:
    return _has_parameters(problem) and not _ranks_or_open(problem)


def _otherwise(problem: Problem) -> bool:
    long = _no_variants(problem) and problem.chain.length > MOST_IN_TABLES
    return not (_has_parameters(problem) or _one_saving_forward(problem) or long)


def _one_processor(problem: Problem) -> bool:
    return len(problem.machine.processors) == 1


MOST_EXACT = 40
"""Tasks up to which every schedule is looked at."""

MOST_SERIES_PARALLEL = 1000
"""Tasks up to which it takes no time to see whether a graph is series-parallel."""

MOST_PARKED = 200
"""Equal steps up to which it is worth looking for what Revolve's slots do not say, such as a place for an adjoint."""

MOST_BESIDE = 20_000
"""Equal steps with storage beside the processor up to which `adjoint-best` takes seconds."""

MOST_WHOLE_MOVES = 8
"""Tasks up to which moves between memories are chosen exactly."""


def _few_tasks(problem: Problem) -> bool:
    return _one_processor(problem) and len(problem.graph.tasks) <= MOST_EXACT


def _moderate_graph(problem: Problem) -> bool:
    return len(problem.graph.tasks) <= MOST_SERIES_PARALLEL


def _few_moves(problem: Problem) -> bool:
    return _way_out(problem) and _one_processor(problem) and len(problem.graph.tasks) <= MOST_WHOLE_MOVES


MOST_PROVED = 300
"""Pipelines of more tasks are rarely proved within a minute."""

LITTLE_WORK = 0.05
"""Work of the programs for small adjoints, as where there is no time limit: they would take all the time there is."""


def _parked(problem: Problem) -> bool:
    return _searchable(problem) and (not _uniform_adjoint(problem) or problem.chain.length <= MOST_PARKED)


def _is_stream(problem: Problem) -> bool:
    return problem.instance.is_stream


def _has_copies(problem: Problem) -> bool:
    """Whether a stream's inputs may lie in several memories, or some tasks read none that ties them to one."""
    if problem.samples is None:
        return False
    placeable = {place.value: place.copies for place in problem.samples.graph.placeable}
    kept = {value for value, copies in placeable.items() if copies == 1}
    return any(kept.isdisjoint(reads) for reads in problem.samples.graph.reads.to_lists())


def _of_devices(problem: Problem) -> bool:
    """Whether a graph that runs once says what runs where, or leaves it to the schedule."""
    graph = problem.graph
    says = graph.times is not None or bool(graph.tied) or bool(graph.placeable)
    return not _is_stream(problem) and (says or any(memory.static for memory in problem.machine.memories))


def _alone_and(applies: Callable[[Problem], bool]) -> Callable[[Problem], bool]:
    """Return a condition for graphs that run once, and say nothing of devices."""
    return lambda problem: not _is_stream(problem) and not _of_devices(problem) and applies(problem)


def _is_inference(problem: Problem) -> bool:
    return problem.instance.samples_seen is not None


def _changes(problem: Problem) -> bool:
    """Whether parameters change while micro-batches are under way."""
    return _is_stream(problem) and not _is_inference(problem)


def _is_step(problem: Problem) -> bool:
    return not _is_stream(problem)


def _has_groups(problem: Problem) -> bool:
    return bool(getattr(problem.instance, "has_tensor", False))


def _small_pipeline(problem: Problem) -> bool:
    return _is_step(problem) and len(problem.graph.tasks) <= MOST_PROVED


TABLE: tuple[Rule, ...] = (
    Rule("chain", "parameters, and several memories", ("weight-offload",), _parameters_and_memories),
    Rule(
        "chain", "parameters that ranks share out, or that may lie anywhere, or without end", ("zero",), _ranks_or_open
    ),
    Rule("chain", "parameters that may lie anywhere", ("granular-offload",), _open_places),
    Rule("chain", "steps without end, and several memories", ("zero-offload",), _endless_and_memories),
    Rule("chain", "steps without end, parameters elsewhere", ("zero-infinity",), _endless_and_memories),
    Rule("chain", "parameters, otherwise", ("dag-auto", "keep-all"), _plain_parameters),
    Rule(
        "chain",
        "links to another memory and back, one saving forward per stage, at most 200 stages",
        ("remat-offload-best",),
        _offloads,
        many=("rotor",),
    ),
    Rule(
        "chain",
        "links to another memory and back, otherwise, at most 20000 tasks",
        ("dag-offload-best",),
        _other_offloads,
    ),
    Rule("chain", "links to another memory and back", ("offload-greedy",), _way_out),
    Rule(
        "chain",
        "one saving forward per stage, at most 1000 stages",
        ("chain-best", "rotor"),
        _one_saving_forward,
        many=("rotor",),
    ),
    Rule(
        "chain",
        "one saving forward per stage, more than 1000 stages",
        ("chain-best",),
        _long,
        many=("rotor",),
    ),
    Rule(
        "chain",
        "no parameters, otherwise, unless more than 2500 stages have one saving forward each",
        ("rotor",),
        _otherwise,
        many=("rotor",),
    ),
    Rule("adjoint", "everything fits", ("store-all",), _fits_whole, first=True, many=("store-all",)),
    Rule(
        "adjoint",
        "one memory, states and adjoints of one size",
        ("adjoint-dp", "revolve"),
        _shared_equal_sizes,
        first=True,
        many=("adjoint-dp",),
    ),
    Rule(
        "adjoint",
        "uniform steps, several levels, or checkpoints that take time",
        ("h-revolve",),
        _levels,
        first=True,
        many=("h-revolve",),
    ),
    Rule(
        "adjoint",
        "uniform steps, one level whose transfers take no time",
        ("revolve",),
        _one_free_level,
        first=True,
        many=("revolve",),
    ),
    Rule(
        "adjoint",
        "uniform steps, several levels, some beside the processor or too many for a table",
        ("two-level-async",),
        _levels_without_table,
        first=True,
    ),
    Rule(
        "adjoint",
        "uniform steps, several levels, too many for a table",
        ("periodic-disk-revolve",),
        _long_levels,
        first=True,
    ),
    Rule("adjoint", "uniform steps, several levels, too many for a table", ("two-level",), _long_levels, first=True),
    Rule("adjoint", "uniform steps, otherwise", ("revolve",), _uniform_otherwise, first=True),
    Rule(
        "adjoint",
        "states of one size, one level, a table of moderate size",
        ("walther-griewank",),
        _slots_of_one_size,
        first=True,
        many=("walther-griewank",),
    ),
    Rule(
        "adjoint", "at most 2000 steps, or 200 uniform ones", ("adjoint-best",), _parked, options={"work": LITTLE_WORK}
    ),
    Rule(
        "adjoint",
        "at most 20000 uniform steps, storage beside the processor",
        ("adjoint-best",),
        _moderate_beside,
        options={"work": LITTLE_WORK},
    ),
    Rule("adjoint", "more steps, of their own", ("adjoint-best",), _many_own_steps),
    Rule("adjoint", "another memory than the first computes", ("recompute-all",), _starts_elsewhere),
    Rule("tree", "one processor, no links", ("liu",), _alone, first=True, many=("liu",)),
    Rule("tree", "several processors, or links", ("liu",), _not_alone, first=True),
    Rule("join", "all values fit at once", ("keep-all",), _nothing_to_free, first=True),
    Rule("join", "any", ("join-dp",), _always),
    Rule("join", "one processor, at most 40 tasks", ("dag-exact",), _few_tasks),
    Rule("join", "any; beyond schedules that nest", ("dag-auto", "keep-all"), _always),
    Rule("dag", "a stream of samples", ("tarnawski-dp",), _is_stream, first=True),
    Rule("dag", "a stream of samples, inputs of several copies", ("placement-replicated",), _has_copies),
    Rule("dag", "a stream of samples", ("tarnawski-ip",), _is_stream),
    Rule("dag", "no stream; types of processors, ties, or inputs to be placed", ("tarnawski-latency",), _of_devices),
    Rule("dag", "otherwise; all values fit at once", ("keep-all",), _alone_and(_nothing_to_free), first=True),
    Rule("dag", "otherwise; at most 1000 tasks", ("sp-order",), _alone_and(_moderate_graph), free=True),
    Rule(
        "dag",
        "otherwise; at most 1000 tasks; chains that meet in one loss",
        ("join-dp",),
        _alone_and(_moderate_graph),
        free=True,
    ),
    Rule("dag", "otherwise; one processor, at most 40 tasks", ("dag-exact",), _alone_and(_few_tasks), free=True),
    Rule(
        "dag",
        "otherwise; links to another memory and back, at most 20000 tasks",
        ("dag-offload-best",),
        _alone_and(_moderate_way_out),
    ),
    Rule(
        "dag",
        "otherwise; links to another memory and back, more than 20000 tasks",
        ("offload-greedy",),
        _alone_and(_large_way_out),
    ),
    Rule(
        "dag",
        "otherwise; links to another memory and back, at most 8 tasks",
        ("offload-exact",),
        _alone_and(_few_moves),
    ),
    Rule("dag", "otherwise", ("dag-auto", "keep-all"), _alone_and(_no_moderate_way_out)),
    Rule(
        "dag",
        "otherwise; in a better order",
        ("dag-auto",),
        _alone_and(_no_moderate_way_out),
        options={"reorder": True},
        free=True,
    ),
    Rule("pipeline", "forwards only", ("tarnawski-dp",), _is_inference, first=True),
    Rule("pipeline", "forwards only, copies of layers", ("placement-replicated",), _has_copies),
    Rule("pipeline", "forwards only", ("tarnawski-ip",), _is_inference),
    Rule("pipeline", "weights that change while micro-batches are under way", ("1f1b-star",), _changes),
    Rule("pipeline", "layers that several devices may run together", ("piper",), _has_groups),
    Rule("pipeline", "any other", ("pipe-search",), _is_step),
    Rule("pipeline", "at most 300 tasks", ("pipe-exact",), _small_pipeline, options={"work": 20.0}),
)


def rows(problem: Problem) -> list[tuple[Rule, registry.Algorithm]]:
    """Return the rows that apply to a problem, each with the algorithm that it names."""
    available = {algorithm.name: algorithm for algorithm in registry.algorithms(problem.kind, available=True)}
    named = []
    for rule in TABLE:
        if rule.kind == problem.kind and rule.applies(problem):
            name = next((name for name in rule.algorithms if name in available), None)
            if name is not None:
                named.append((rule, available[name]))
    return named


def cheap(problem: Problem) -> list[registry.Algorithm]:
    """Return the algorithms that are always asked about instances of a kind."""
    listed = registry.algorithms(problem.kind, available=True)
    return [algorithm for algorithm in listed if problem.kind in algorithm.cheap]


def for_many(problem: Problem) -> registry.Algorithm | None:
    """Return the algorithm that answers alone for problems that differ in budget or batch; None: they are solved."""
    available = {algorithm.name: algorithm for algorithm in registry.algorithms(problem.kind, available=True)}
    for rule in TABLE:
        if rule.kind == problem.kind and rule.applies(problem):
            for name in rule.many:
                if name in available:
                    return available[name]
    return None
