"""`poet`: recomputation and paging by integer programming (after Patil et al. 2022)."""

from __future__ import annotations

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import Context, Number, OptionError, Options, Problem, Proposal, Steps, Termination
from remat_algorithms.dag.programs.frontier import FRONTIER
from remat_algorithms.dag.programs.search import Search
from remat_algorithms.kit.programs.answers import Outcome
from remat_algorithms.kit.programs.solvers import solve_program
from remat_algorithms.offload.exact.scale import transfer_time
from remat_algorithms.offload.poet.program import Pager, PoetProgram
from remat_algorithms.offload.poet.steps import steps_of

SCOPE = f"{FRONTIER}, paging by whole stages"
MOST_COLUMNS = 60_000
MOST_FOR_CBC = 6_000
"""Most columns of the program; CBC would hardly find a solution of a larger one, another solver may."""

NAME = "poet"


class PoetOptions(Options):
    """Options of `poet`."""

    solver: str = Field(
        default="", pattern=r"^([A-Za-z_]\w*)?$", description="A solver that PuLP finds, by PuLP's name; default: CBC."
    )
    memory: str = Field(
        default="", description="The second memory; default: the first one linked both ways with the processor's."
    )


def solve(problem: Problem, options: PoetOptions, context: Context) -> Proposal:
    """Choose what to run again and what to page out, by integer programming.

    `remat_algorithms.offload.poet.program` states the program: its stages wait for each other, and each is as long as
    its busiest resource, transfers included (the published code lets paging take no time). The steps that follow from
    its solution are then placed without such waiting: they end when the stages do, or sooner, and it is the placed
    schedule that is reported. It need not be the best one.

    Takes instances of kind `chain`, `adjoint` or `dag`; uses the first processor, its memory and one more. Seed and
    threads are CBC's; PuLP's solvers know a deadline, and are ended when interrupted. Comes with start times, and
    without a claim; infeasible within `SCOPE` if the solver says so. A note has the stages' makespan.

    Raises
    ------
    OptionError
        If PuLP does not find the solver, the memory is unknown or not linked both ways, or a value begins or must end
        in another memory than the processor's alone.
    """
    pager = _pager(problem, options)
    search = Search(problem, context, SCOPE, NAME)
    early = search.without_reruns()
    if early is not None:
        return early
    if search.context.stopped:
        return _fallback(search)
    if search.front.start > search.budget:
        return search.infeasible()
    most = MOST_COLUMNS if options.solver else MOST_FOR_CBC
    if search.front.slots > most:
        return _too_many(search, f"{search.front.slots:,} runs", most)
    form = PoetProgram(search.front, problem.machine, pager, search.budget)
    columns = len(form.builder.cost)
    if columns > most:
        return _too_many(search, f"{columns:,} columns", most)
    if context.stopped:
        return _fallback(search)
    if min(form.rooms) < 0:
        return search.infeasible()
    answer = solve_program(form.builder.build(), f"pulp:{options.solver}" if options.solver else "pulp", context)
    if answer.outcome is Outcome.INFEASIBLE and form.exact:
        return search.infeasible()
    if answer.solution is None:
        return _fallback(search)
    steps = steps_of(problem, search.front, pager, form.choice(answer.solution))
    staged = form.makespan(answer.solution)
    if search.best is not None and search.best.makespan <= staged:
        return _fallback(search)
    return _placed(problem, search, steps, staged, answer.outcome is Outcome.OPTIMAL)


def _too_many(search: Search, what: str, most: int) -> Proposal:
    search.notes.append(f"{what} are too many: at most {most:,} columns are tried")
    return search.propose(proved=False, termination=Termination.SIZE_LIMIT)


def _fallback(search: Search) -> Proposal:
    """Return the schedule without reruns, if that fits; else nothing."""
    return search.propose(proved=False, termination=search.limit)


def _placed(problem: Problem, search: Search, steps: Steps, staged: Number, proved: bool) -> Proposal:
    """Place the steps; keep them if nothing known is better."""
    placed = place(problem.graph, problem.machine, steps)
    if isinstance(placed, Unplaceable):
        raise AssertionError(f"step {placed.step} of a solution does not fit")
    search.notes.append(f"makespan of stages that wait for each other: {staged:g}; placed without waiting")
    return Proposal(
        steps=steps.placed(placed.start),
        termination=Termination.COMPLETED if proved else search.limit,
        notes=tuple(search.notes),
    )


def _pager(problem: Problem, options: PoetOptions) -> Pager | None:
    """Choose the second memory; None if there is none."""
    machine, graph = problem.machine, problem.graph
    home = machine.processors[0].memory
    names = [memory.name for memory in machine.memories]
    linked = [
        index
        for index in range(len(names))
        if (home, index) in machine.link_index and (index, home) in machine.link_index
    ]
    second = linked[0] if linked else None
    if options.memory:
        if options.memory not in names:
            raise OptionError(
                f"unknown memory {options.memory!r}; this machine has {', '.join(names)}", option="memory"
            )
        second = names.index(options.memory)
        if second not in linked:
            raise OptionError(
                f"{options.memory!r} is not linked both ways with {names[home]!r}, where the processor works",
                option="memory",
            )
    ends = [(entry.value, machine.memory_index[entry.memory or names[0]]) for entry in (*graph.inputs, *graph.outputs)]
    begin = {(entry.value, machine.memory_index[entry.memory or names[0]]) for entry in graph.inputs}
    for value, memory in ends:
        if memory != home and ((value, memory) not in begin or (value, home) not in begin):
            raise OptionError(
                f"{NAME} begins and ends in memory {names[home]!r}, and {graph.values[value]!r} lies in "
                f"{names[memory]!r}",
                argument="algorithm",
            )
    if second is None:
        return None
    sizes = graph.size.tolist()
    out, back = machine.link_index[home, second], machine.link_index[second, home]
    out_time, back_time = ([float(transfer_time(machine.links[link], size)) for size in sizes] for link in (out, back))
    capacity = machine.memories[second].capacity
    static = graph.static_memory if second == 0 else 0
    return Pager(
        home=home,
        memory=second,
        out=out,
        back=back,
        out_time=list(out_time),
        back_time=list(back_time),
        room=None if capacity is None else capacity - static,
        begin=frozenset(value for value, memory in begin if memory == second),
    )
