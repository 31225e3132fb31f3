"""Judge a schedule of any form, for an instance of any kind, by simulating it as the format says.

Steps are simulated event by event; orders are played to steps first, and periodic schedules are written out.

Rules
-----
unknown-task, unknown-value, unknown-memory, unknown-processor, unknown-link
    A name that the instance or the machine does not have.
bad-step
    A step without a proper `start`, of no known kind, on impossible processors, dropping what its task neither
    reads nor writes.
resource-busy
    A step begins on a resource while another is served there; at one instant, steps begin in listed order, one of no
    length being over before the next begins.
read-missing
    What a run or a copy reads is not there, or not all of it.
value-busy
    A step reads, frees or writes a value that another one is writing there; or writes one that another one is
    reading there; or frees one that another one is reading there.
free-missing
    Nothing there to free (or fewer bytes than are moved away).
bad-bytes
    A partial move of a wrong size, without `drop`, or to where the value then has more bytes than its size.
pinned-input
    A pinned input is freed, wholly or in part, in a memory in which it lies at the start.
required-missing
    A `required` or `once` task never runs.
once-repeated, not-recomputable
    A second run of a task that is `once`, or not `recomputable`.
output-missing
    An output is not completely in its memory at the end.
capacity
    More bytes than the memory has.
initial-placement
    A placeable input lies nowhere at the start, or in more memories than copies are allowed; a layer is in no stage.
deadlock
    Orders that wait for each other for ever.
period-overlap, period-precedence, version-mismatch
    Of periodic schedules: see `samples`, `patterns` and `cycles`.
time-hidden
    Looked for only where no other rule is broken: if each step waited, to the last digit, for what has ended before it
    at the same instant, one would begin or free later than given by more than the tolerance of an instant.

Readings of the format where it is brief
----------------------------------------
- Reading a value whose first bytes are still being written breaks two rules: read-missing and value-busy.
- Where two steps conflict, the one that starts later (or frees) is named; a capacity violation names each step
  that adds bytes to a memory that then exceeds its capacity, and no step for the initial residency.
- Presence and busyness are per value and memory, also for partial moves: a part of a value cannot leave while
  another step is reading (even moving) the value there.  Bytes have no identity: a value is readable where the
  number of its bytes is its size.
- Several frees of one value at one instant: the first listed one frees, the others find nothing (free-missing).
- A free that breaks a rule is not carried out; every other step is, so that one error does not breed many.
- The makespan is the greatest end of any step, drop steps included.
- If any start or end is a float, instants are clusters: sorted times within 1e-9 of the makespan of the first
  time of the cluster.  A step whose start and end fall into one cluster has no length.  Where this breaks a rule of
  presence, clusters are so short that they contain no whole step, if that breaks none.
- Recompute time is the sum of the runs' times, each on one processor, minus the no-recompute time: running a task on
  several processors does not count as negative recomputation. The cheapest producers: values already written by a
  needed task need no other (a task that reads a value cannot be the first to write it); then values with one producer;
  then, in the graph's order, the least time, the first listed on ties.
- Pinned inputs may be re-produced by a copy or a run, because no step frees them.
- The schedule's machine, where it has one, replaces the instance's; the default memory of inputs follows it.
- `after` is not judged; a list of steps without start times is placed by `placer`.
- Of a chain whose steps of training follow each other, the step is judged by itself first.
- A schedule by orders that breaks a rule of the orders has no steps, and its checks end there.
- Placeable inputs are pinned in the memories that `initial` lists, except those of a chain: their replacements must be
  present at the end. An entry of `initial` for anything else is no placement (initial-placement); an unknown memory is
  unknown-memory.
- A memory named twice for one input counts once.
- Of two runs at once that break a rule, the second one does not happen, and the first one is alone.
"""

from . import cycles, documents, lowering, orders, patterns, placer, samples
from .judging.figures import no_recompute_time
from .judging.report import Report
from .judging.steps import judge

__all__ = ["Report", "check", "no_recompute_time"]


def check(document, schedule, budget=None):
    """Judge a schedule.

    Parameters
    ----------
    document : dict
        The instance, of any kind.
    schedule : dict or list
        A schedule document of any form, or a list of steps.
    budget : int, str or dict, optional
        Overrides capacities, as in `lowering.machine`; not used when the schedule has a machine.

    Returns
    -------
    Report
    """
    document, schedule = documents.plain(document), _plain(schedule, document)
    document = orders.divided(document, schedule)
    if isinstance(budget, dict):
        budget = {name: documents.size(size) for name, size in budget.items()}
    machine, differs = lowering.machine(document, documents.size(budget)), False
    if isinstance(schedule, dict) and schedule.get("machine") is not None:
        own = lowering.read_machine(schedule["machine"])
        machine, differs = own, own != machine
    if isinstance(schedule, dict) and schedule.get("period") is not None:
        report = _check_periodic(document, schedule, machine, budget)
    else:
        report = _check_once(document, schedule, machine)
    report.machine_differs = differs
    return report


def _plain(schedule, document):
    return schedule if schedule is None else documents.plain_schedule(schedule, document)


def _check_once(document, schedule, machine):
    """Judge steps, or orders that are played to steps."""
    document, follows = orders.in_groups(document, machine, schedule)
    graph = lowering.lower(document, machine, orders.degrees_of(document, schedule))
    steps, initial = schedule, {}
    if isinstance(schedule, dict):
        steps, initial = schedule.get("steps"), schedule.get("initial") or {}
        if schedule.get("orders") is not None:
            transfers = (document.get("cluster") or {}).get("transfers") or "overlap"
            steps, initial, broken, graph = orders.steps_of(document, graph, machine, schedule, transfers)
            if broken:
                return Report([(None, rule) for rule in sorted(set(broken))])
    if steps and all(isinstance(step, dict) and "start" not in step for step in steps):
        starts = placer.place_on(graph, machine, steps, initial)
        if isinstance(starts, tuple):
            return Report([(starts[1], "capacity")])
        steps = [step | {"start": start} for step, start in zip(steps, starts, strict=True)]
    report = judge(graph, machine, steps, initial)
    for device, first in follows.items():
        own, others = machine.processors[device], machine.processors[first]
        report.peaks[own], report.idle[device] = report.peaks[others], report.idle[first]
    return report


def _check_periodic(document, schedule, machine, budget):
    """Judge what is done again and again."""
    if schedule.get("stages") is not None:
        return patterns.judge(document, schedule, machine)
    if schedule.get("pattern") is not None:
        report = samples.judge(document, schedule, machine=machine)
        report.violations = [(None, cycles.PERIODIC.get(rule, rule)) for _, rule in report.violations]
        return report
    report = _check_once(document, {key: value for key, value in schedule.items() if key != "period"}, machine)
    report.period = report.time_per_sample = schedule["period"]
    if report.ok:
        rules, report.steady_peaks = cycles.steady(document, schedule, budget)
        report.violations = [(None, rule) for rule in sorted(rules)]
    return report
