"""`auto`: a documented table, kind x machine x size -> algorithm.

The first row that applies decides (docs/auto.md shows the table too).

Every family keeps its rows current; a row names the first algorithm of its list that is available. Where many budgets
are asked about (sweeps, questions), a row may name others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.plugin import registry

if TYPE_CHECKING:
    from remat.plugin.problem import Problem


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: the first rule that applies decides.

    `many` goes before `algorithms` where many budgets or batches are asked about.
    """

    kind: str
    when: str
    algorithms: tuple[str, ...]
    applies: Callable[[Problem], bool]
    many: tuple[str, ...] = ()


MOST_OFFLOADED = 200
"""Chains of more stages leave `remat-offload-best` no time beyond its first starts."""


def _always(problem: Problem) -> bool:
    return True


MOST_STAGES = 1000
"""Chains of more stages leave `chain-best` no time beyond `rotor`."""


def _one_saving_forward(problem: Problem) -> bool:
    """Whether a chain's stages have no variants, and are not too many to search further than `rotor`."""
    chain = problem.chain
    runs = (3 if chain.saves else 2) * chain.length + 1
    return len(problem.graph.tasks) == runs and chain.length <= MOST_STAGES


def _offloads(problem: Problem) -> bool:
    """Whether values can leave the processor's memory and come back, and the chain is one for `chain-best`."""
    machine = problem.machine
    device = machine.processors[0].memory
    out = {link.target for link in machine.links if link.source == device}
    back = {link.source for link in machine.links if link.target == device}
    return device == 0 and bool(out & back) and _one_saving_forward(problem) and problem.chain.length <= MOST_OFFLOADED


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


def _slots_of_one_size(problem: Problem) -> bool:
    """Whether states of one size go to one level, beside computing, in a table of moderate size."""
    chain, machine = problem.chain, problem.machine
    sizes = set(chain.activation_size.tolist())
    alone = len(machine.memories) == 2 and not chain.saves and not any(machine.resource_of_link)
    return alone and len(sizes) == 1 and _moderate_table(problem)


def _searchable(problem: Problem) -> bool:
    return problem.chain.length < MODERATE_STEPS and problem.machine.processors[0].memory == 0


def _starts_in_its_memory(problem: Problem) -> bool:
    return problem.machine.processors[0].memory == 0


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
    return _has_parameters(problem) and len(problem.machine.memories) > 1


TABLE: tuple[Rule, ...] = (
    Rule("chain", "parameters, and several memories", ("weight-offload",), _parameters_and_memories),
    Rule("chain", "parameters, in one memory", ("dag-auto", "keep-all"), _has_parameters),
    Rule(
        "chain",
        "links to another memory and back, one saving forward per stage, at most 200 stages",
        ("remat-offload-best", "chain-best", "rotor"),
        _offloads,
        many=("rotor",),
    ),
    Rule(
        "chain",
        "one saving forward per stage, at most 1000 stages",
        ("chain-best", "rotor"),
        _one_saving_forward,
        many=("rotor",),
    ),
    Rule("chain", "otherwise", ("rotor",), _always),
    Rule("adjoint", "everything fits", ("store-all",), _fits_whole),
    Rule("adjoint", "one memory, states and adjoints of one size", ("adjoint-dp", "revolve"), _shared_equal_sizes),
    Rule("adjoint", "uniform steps, several levels, or checkpoints that take time", ("h-revolve",), _levels),
    Rule("adjoint", "uniform steps, one level whose transfers take no time", ("revolve",), _one_free_level),
    Rule(
        "adjoint", "states of one size, one level, a table of moderate size", ("walther-griewank",), _slots_of_one_size
    ),
    Rule("adjoint", "at most 2000 steps", ("adjoint-best",), _searchable),
    Rule("adjoint", "uniform steps", ("revolve",), _uniform_adjoint),
    Rule("adjoint", "otherwise", ("adjoint-best",), _starts_in_its_memory),
    Rule("adjoint", "another memory than the first computes", ("recompute-all",), _always),
    Rule("tree", "any", ("liu",), _always),
    Rule("dag", "all values fit at once", ("keep-all",), _nothing_to_free),
    Rule("dag", "otherwise", ("dag-auto", "keep-all"), _always),
)


def choose(problem: Problem, *, many: bool = False) -> registry.Algorithm:
    """Return the algorithm that the table names for a problem, or for many problems that differ in budget or batch."""
    available = {algorithm.name: algorithm for algorithm in registry.algorithms(problem.kind, available=True)}
    for rule in TABLE:
        if rule.kind == problem.kind and rule.applies(problem):
            for name in (*rule.many, *rule.algorithms) if many else rule.algorithms:
                if name in available:
                    return available[name]
    raise OptionError(f"no algorithm for kind {problem.kind!r} is installed")
