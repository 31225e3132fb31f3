"""The minimum budget, as a question: against actual solves at it and below it, and against every schedule found."""

import remat
from tests.fuzz.cases import Solve, named_budget
from tests.fuzz.judging import caught, solved
from tests.fuzz.verdicts import ALL, Answer, Finding

SECONDS = 3.0
OVERHEADS = (0, 0.1, 1000)


def question_findings(case, answers, rng):
    """Yield findings about `remat.least_budget` for one of the algorithms of a case that found a schedule."""
    found = [given for given in answers if given.found and given.result.makespan]
    if not found or any(key in case.document for key in ("stream", "staleness", "weights")):
        return
    chosen = rng.choice(found).solve
    chosen = Solve(chosen.algorithm, None, chosen.options, chosen.seed, time_limit=SECONDS)
    limit = rng.choice(OVERHEADS)
    given = Answer(chosen)
    document = case.document
    result = caught(
        given,
        lambda: remat.least_budget(
            document,
            max_overhead=f"{100 * limit:g}%",
            algorithm=chosen.algorithm,
            options=chosen.options,
            seed=chosen.seed,
            time_limit=SECONDS,
        ),
    )
    yield from (Finding("question", f.algorithm, f"{f.rule}: {f.message}", (chosen,)) for f in given.findings)
    if result is None or result.answer is None:
        return
    yield from _answered(case, chosen, limit, result, answers)


def _answered(case, chosen, limit, result, answers):
    asked, name = result.answer, chosen.algorithm

    def blame(message):
        return Finding("question", name, f"overhead {limit}: {message}", (chosen,))

    longest = result.reference_time * (1 + limit) * (1 + 1e-9)
    if asked.value is not None:
        if result.columns is None or result.makespan > longest:
            yield blame(f"budget {asked.value} without a schedule of at most {longest}")
        elif dict(result.peak_memory)[asked.memory] > asked.value:
            yield blame(f"budget {asked.value}, and the schedule holds {dict(result.peak_memory)[asked.memory]}")
        elif asked.ask is not None and str(result.termination) == "completed":
            budget = named_budget(case.document, asked.memory, asked.ask)
            again = solved(case, Solve(name, budget, chosen.options, chosen.seed))
            if again.columns is None or again.makespan > longest:
                yield blame(f"budget {asked.ask} in {asked.memory} is named, and there is {again.makespan}")
    if asked.bound is None or asked.scope != ALL:
        return
    capacities = {memory.name: memory.capacity for memory in result.machine.memories if memory.name != asked.memory}
    for other in answers:
        if not other.found or other.result.makespan > result.no_recompute_time * (1 + limit):
            continue
        peaks = dict(other.result.peak_memory)
        together = isinstance(named_budget(case.document, asked.memory, 0), int)  # one budget for all devices
        needed = max(
            size for memory, size in peaks.items() if memory == asked.memory or (together and memory != "host")
        )
        if needed < asked.bound and all(
            capacity is None or peaks[memory] <= capacity for memory, capacity in capacities.items()
        ):
            yield blame(f"no less than {asked.bound}, and {other.solve.algorithm} needs {needed}")
