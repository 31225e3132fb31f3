"""`random-order`: draw topological orders, keep the one with the smallest peak."""

from random import Random

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal, Steps, run_in_order


class RandomOrderOptions(Options):
    """Options of `random-order`."""

    tries: int = Field(20, ge=1, description="number of random orders to try")


def solve(problem: Problem, options: RandomOrderOptions, context: Context) -> Proposal:
    """Return the first random order that fits the budget."""
    random = context.random()
    for _ in range(options.tries):
        order = draw_order(problem, random)
        if peak(problem, order) <= (problem.budget if problem.budget is not None else 2**63):
            return Proposal(steps=steps(problem, order), makespan=problem.no_recompute_time)
        if context.stopped:
            break
    return Proposal(termination=context.termination)


def steps(problem: Problem, order: list[int]) -> Steps:
    """Free each value after its last use."""
    return run_in_order(problem.graph, problem.machine, order)


def draw_order(problem: Problem, random: Random) -> list[int]:
    """Draw one of the ready tasks, again and again."""
    reads, writes = problem.graph.reads.to_lists(), problem.graph.writes.to_lists()
    there = {place.value for place in problem.graph.inputs}
    waiting = [task for task, needed in enumerate(problem.needed.once) if needed]
    order = []
    while waiting:
        task = random.choice([task for task in waiting if there.issuperset(reads[task])])
        waiting.remove(task)
        there.update(writes[task])
        order.append(task)
    return order


def peak(problem: Problem, order: list[int]) -> int:
    """Replay an order and return its peak in bytes."""
    graph, planned = problem.graph, steps(problem, order)
    size, present = graph.size, {place.value for place in graph.inputs}
    most = held = graph.static_memory + int(sum(size[value] for value in present))
    for step, task in enumerate(order):
        written = set(graph.writes[task].tolist())
        most = max(most, held + int(sum(size[value] for value in written)) + int(graph.workspace[task]))
        present = (present | written) - set(planned.drop[step].tolist())
        held = graph.static_memory + int(sum(size[value] for value in present))
    return most
