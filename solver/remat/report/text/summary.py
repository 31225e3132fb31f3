"""A result as a table of plain text, and as a small JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from remat.graph.machine import Machine
from remat.messages import counted, printable
from remat.plugin.problem import device_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget, Status, Termination
from remat.report.text.class_bounds import class_bounds
from remat.report.text.columns import text_width
from remat.report.text.overheads import percent
from remat.report.text.readable_names import shown_name, shown_step, shown_task
from remat.report.text.run_times import (
    limiting_lines,
    overhead_line,
    rank_count,
    rank_lines,
    recompute_lines,
    speed_up_words,
)
from remat.report.text.shortfall_lines import OPTION, shortfall_lines
from remat.report.text.stopped import stopped_lines
from remat.schedule.orders import Stage
from remat.schedule.steps import StepKind
from remat.solving.conclusion import OWN_SOURCES
from remat.solving.decisions.training import stage_names
from remat.solving.decisions.words import decision_documents, decision_words
from remat.solving.hints import PORTFOLIO
from remat.solving.result import Answer, Result
from remat.units import Number, Units, budget_to_paste, format_budget, format_size, format_time
from remat.verifier import Report, Steady

ROUNDING = 1e-12
"""Gaps up to this share come of rounding."""

WIDTH = 100
"""Maximum number of columns of a table."""

MOST_DEVICES = 8
"""Up to this number, all links, and all devices of a pipeline, are listed."""

MUCH_OF_LIMIT = 0.9
"""A solve that takes less than this share of its time limit was not stopped by the whole limit."""

MOST_STAGES = 16
"""Number of stages of a pipeline that are listed individually."""


def summary(result: Result, *, verbose: bool = False, option: str = OPTION) -> str:
    """Return the result of a solve as aligned text of at most `WIDTH` columns: decisions first, then figures.

    Without a schedule, the text gives the reason and a sufficient budget. `verbose` lists all decisions; `option`
    is the prefix of each suggested budget.
    """
    return table(lines_of(result, verbose=verbose, option=option))


def table(lines: Iterable[tuple[str, str]]) -> str:
    """Align (label, text) pairs in two columns; an empty label continues the one above.

    A label that takes more than half of the width is printed on separate lines, before its text.
    """
    listed = [(label, printable(text)) for label, text in lines]
    width = text_width(WIDTH)
    most = width // 2
    indent = min(max((len(label) for label, _ in listed if len(label) + 2 <= most), default=0) + 2, max(width - 1, 0))
    rows: list[str] = []
    for label, text in listed:
        wrapped = _wrapped(text, max(1, width - indent))
        if len(label) + 2 > indent:
            rows += [label[start : start + width] for start in range(0, len(label), max(1, width))]
            label = ""
        rows += [f"{label if k == 0 else '':<{indent}}{part}".rstrip() for k, part in enumerate(wrapped)]
    return "\n".join(rows)


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines; import `textwrap` only for long texts, as the import costs as much as a whole table."""
    if len(text) <= width and text == " ".join(text.split()):
        return [text]
    import textwrap

    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def figures(result: Result) -> dict[str, Any]:
    """Return the head of the schedule document and derived figures, that is, the contents of the table, as JSON.

    The schema has a separate name, because a document without steps is not a schedule.
    """
    from remat.schedule.document import SUMMARY_SCHEMA

    document = result.head() | {"schema": SUMMARY_SCHEMA}
    document["no_recompute_time"] = result.no_recompute_time
    document["memory_bounds"] = {
        name: {"size": bound.size, "task": None if bound.task is None else result.graph.tasks[bound.task]}
        for name, bound in result.memory_bounds.items()
    }
    report, short = result.report, result.shortfall
    if result.total_bound is not None:
        total = result.total_bound
        task = None if total.task is None else result.graph.tasks[total.task]
        document["total_bound"] = {"size": total.size, "task": task}
    if report is None:
        document["infeasible_within"] = result.scope
        if short is not None:
            document["shortfall"] = short.to_dict(result.graph)
    else:
        document |= {
            "decisions": decision_documents(result),
            "overhead": result.overhead,
            "reference_time": result.reference_time,
            "gap": result.gap,
            "steps": len(result.steps),
            "peak_step": {name: result.peak_step(name) for name in report.peaks},
            "idle": dict(report.idle),
            "overlap": dict(report.overlap),
        }
        if report.energy is not None:
            document["energy"] = report.energy
        if report.steady is not None:
            document["steady"] = steady_document(report.steady)
    return document


def steady_document(steady: Steady) -> dict[str, Any]:
    """Return the figures of each period as JSON."""
    return {
        "period": steady.period,
        "samples": steady.samples,
        "time_per_sample": steady.time_per_sample,
        **({} if steady.latency is None else {"latency": steady.latency}),
        "peak_memory": dict(steady.peaks),
        "busy": dict(steady.busy),
        "bubble": steady.bubble,
        "in_flight": list(steady.in_flight),
        "versions": list(steady.versions),
        "staleness": list(steady.staleness),
    }


def lines_of(result: Result, *, verbose: bool = False, option: str = OPTION) -> Iterator[tuple[str, str]]:
    """Yield the rows of a summary as (label, text); an empty label continues the one above."""
    units = result.units
    yield "instance", shown_name(result.instance_name) or "(unnamed)"
    yield "algorithm", _algorithm(result)
    yield "status", _status(result, option)
    yield from rank_lines(result.instance)
    if result.answer is not None:
        yield from _answer(result.answer, result)
    if result.report is None:
        yield from _without_schedule(result, option)
    else:
        yield from decision_lines(result, verbose=verbose)
        yield from _schedule(result, result.report)
    bounded = result.status is not Status.INFEASIBLE or result.answer is not None  # else there is nothing to bound
    if bounded and (result.lower_bound or not result.makespan):
        yield "lower bound", _lower_bound(result)
    yield from class_bounds(result)
    yield from stopped_lines(result)
    if result.report is not None:
        yield from limiting_lines(result, result.report)
        yield from traffic(result.report, result.machine, units, idle=result.orders is None)
        yield "steps", f"{len(result.report.start):,}"
    yield "solve time", format_time(result.solve_seconds)
    yield from _labelled("notes", result.notes)
    least = result.least_budget
    scopes = {result.optimal_within, result.scope, None if least is None else least.scope} - {None, ALL_SCHEDULES}
    if scopes:
        from remat.report.glossary import drawn_terms

        words = drawn_terms(result.optimal_within, result.scope, None if least is None else least.scope)
        if words:
            yield "see also", ", ".join(f"remat explain {word}" for word in words)


def decision_lines(result: Result, *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the decisions in words, after the names of the stages that they number."""
    if names := stage_names(result):
        yield "stages", names
    yield from _labelled("decisions", decision_words(result, all_of_them=verbose))


def _algorithm(result: Result) -> str:
    options = ", ".join(f"{name}={value}" for name, value in result.options.items())
    return result.algorithm + (f" ({options})" if options else "") + (f", seed {result.seed}" if result.seed else "")


def _status(result: Result, option: str) -> str:
    text = str(result.status)
    if result.status is Status.FEASIBLE and result.optimal_within:
        text += f", optimal within {result.optimal_within}"
    elif result.status is Status.INFEASIBLE:
        text += ", proved over all schedules"
    elif result.status is Status.UNKNOWN and result.scope:
        text += f", infeasible within {result.scope}"
    if result.termination is not Termination.COMPLETED:
        seconds = result.solve_seconds if result.asked == PORTFOLIO and result.answer is None else None
        text += f" ({ending(result.termination, result.default_limit, option, seconds=seconds)})"
    return text


def ending(
    termination: Termination, default_limit: float | None, option: str = OPTION, *, seconds: float | None = None
) -> str:
    """Return what ended a search; a default time limit is named, with the argument or flag that changes it.

    `option` is the budget as the reader writes it; the time limit begins with the same dashes. `seconds` is the wall
    time of a portfolio: if it ended long before the limit, the limit stopped one of its algorithms, not the whole.
    """
    if termination is Termination.TIME_LIMIT and default_limit is not None:
        dashes = option.partition("budget")[0]
        name = f"{dashes}time-limit" if dashes else "time_limit"
        if seconds is not None and seconds < MUCH_OF_LIMIT * default_limit:
            return f"an algorithm used up its share of the default {default_limit:g} s: raise {name}"
        return f"default time limit, {default_limit:g} s: {name}"
    return str(termination)


def _answer(answer: Answer, result: Result) -> Iterator[tuple[str, str]]:
    yield "question", answer.question
    if answer.value is None:
        yield "answer", "there is none" if answer.scope is not None else "none was found"
        return

    def shown(value: int) -> str:
        if answer.quantity == "batch":
            return f"a batch of {value:,}"
        size = format_budget(value, result.units, both=True)
        exact = size.replace(",", "") == str(value)
        return (
            size
            if answer.ask is None or (exact and answer.ask == value)
            else f"{size}, budget {budget_to_paste(answer.ask, result.units, exact=True)}"
        )

    states = "" if answer.slots is None else f" ({counted(answer.slots, 'slot')})"
    which, limit = ("largest", "at most") if answer.quantity == "batch" else ("least", "at least")
    proof = ""
    if answer.proved:
        proof = f"; the {which}, proved for {answer.scope}"
        if answer.scope != ALL_SCHEDULES and answer.quantity == "budget":
            proof += "; others may need less"
    elif answer.bound is not None:
        batch = answer.quantity == "batch"
        bound = f"{answer.bound:,}" if batch else format_budget(answer.bound, result.units, enough=False)
        proof = f"; {limit} {bound}, proved for {answer.scope}"
    yield "answer", shown(answer.value) + states + proof


def _schedule(result: Result, report: Report) -> Iterator[tuple[str, str]]:
    units = result.units
    yield from times(report, units)
    if report.steady is None and result.orders is not None:
        yield from _of_pipeline(result, report)
    elif result.overhead is not None:
        yield overhead_line(result, report)
    yield from recompute_lines(report, units)
    yield from energy_lines(report)
    per_rank = " per rank" if rank_count(result.instance) > 1 else ""
    used = [memory for memory in result.machine.memories if report.peaks[memory.name].size]
    for label, memory in _labelled("peak memory", used or result.machine.memories[:1]):
        size = report.peaks[memory.name].size
        limit = "" if memory.capacity is None else f" of {format_budget(memory.capacity, units, both=True)}"
        limit += per_rank
        assert result.columns is not None
        step = shown_step(result.graph, result.machine, result.columns, report.peaks[memory.name].step)
        cause = _cause(size, step)
        yield label, f"{shown_name(memory.name)}: {format_budget(size, units, both=True)}{limit}{cause}"
    for label, (name, arena) in _labelled("arena", report.arenas.items()):
        size = report.peaks[name].size
        above = f", {percent(arena / size - 1)} above the peak" if arena > size > 0 else ""
        yield label, f"{shown_name(name)}: {format_budget(arena, units, both=True)}{above}"


def energy_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the energy of a schedule if its instance gives one."""
    if report.energy is not None:
        looked_at = "" if report.steady is None else ", of all that is checked step by step"
        exact = isinstance(report.energy, int) and report.energy < 10**12
        yield "energy", (f"{report.energy:,}" if exact else f"{report.energy:.6g}") + looked_at


def _of_pipeline(result: Result, report: Report) -> Iterator[tuple[str, str]]:
    """Describe the utilization of the devices, with and without a barrier after each step."""
    units = result.units
    yield "period", f"{format_time(max(report.spans.values()), units)}, of steps that follow without a barrier"
    speed_up = speed_up_words(result, report)
    if speed_up:
        yield "speed-up", speed_up
    if result.orders is not None:
        yield "stages", arrangement(result.orders.stages, len(result.machine.processors))
    if result.idle_share is not None:
        yield "idle", f"{percent(result.idle_share, signed=False)} of the makespan, mean of all devices"
    used = {name: share for name, share in report.bubble.items() if report.spans[name]}
    yield "bubble", f"{_bubbles(used)} idle from the first to the last operation"


def arrangement(stages: Sequence[Stage], count: int | None = None) -> str:
    """Return the arrangement of the stages on the devices in words; with their `count`, also how many have none."""
    idle = 0 if count is None else count - len({device for stage in stages for device in stage.devices})
    if idle > 0:
        return f"{arrangement(stages)}; {idle} of {count} devices {'has' if idle == 1 else 'have'} none"
    row = [stage.device for stage in sorted(stages, key=lambda stage: stage.layers)]
    devices = list(dict.fromkeys(row))
    times, left = divmod(len(row), len(devices))
    if times == 1 and not left:
        return "one on each device"
    if row == devices * times:
        return f"{times} on each device, interleaved"
    if times % 2 == 0 and row == (devices + devices[::-1]) * (times // 2):
        return f"{times} on each device, in {'a V' if times == 2 else f'{times // 2} Vs'}"
    if len({stage.layers for stage in stages}) < len(stages):
        return f"{len(row)} with copies of layers, on {counted(len(devices), 'device')}"
    return f"{len(row)} on {counted(len(devices), 'device')}"


def times(report: Report, units: Units) -> Iterator[tuple[str, str]]:
    """Yield the makespan, and the period if micro-batches, samples or steps form an infinite stream."""
    steady = report.steady
    if steady is not None and steady.latency is not None:
        yield from _of_samples(report, steady, units)
        return
    yield "makespan", format_time(report.makespan, units)
    if steady is not None:
        yield from _of_stream(steady, units)


def _of_stream(steady: Steady, units: Units) -> Iterator[tuple[str, str]]:
    yield "period", f"{format_time(steady.period, units)}, from one {steady.what} to the next"
    busiest = max(steady.busy, key=lambda name: steady.busy[name])
    yield "busiest", f"{shown_name(busiest)}: {format_time(steady.busy[busiest], units)} of each period"
    yield "bubble", f"{_bubbles(steady.bubble)} idle in each period"
    stages = ", stage by stage" if len(steady.in_flight) > 1 or steady.what == "micro-batch" else ""
    plural = "" if steady.in_flight == (1,) else "es" if steady.what == "micro-batch" else "s"
    yield "in flight", f"{_joined(steady.in_flight)} {steady.what}{plural}{stages}"
    yield "versions", f"{_joined(steady.versions)} of the parameters; staleness {_joined(steady.staleness)}"
    yield from _of_each_period(steady, units)


def _of_samples(report: Report, steady: Steady, units: Units) -> Iterator[tuple[str, str]]:
    """Yield lines on a modulo schedule of samples; comparisons use the time per sample."""
    each = format_time(steady.time_per_sample, units)
    if steady.samples == 1:
        yield "period", f"{each}, from one sample to the next"
    else:
        yield "period", f"{each} a sample: {format_time(steady.period, units)} for {steady.samples:,} of them"
    assert steady.latency is not None
    at_once = f"{steady.in_flight[0]:,} sample{'s' if steady.in_flight[0] > 1 else ''} at once"
    yield "latency", f"{format_time(steady.latency, units)} from the start to the end of a sample, {at_once}"
    yield "makespan", f"{format_time(report.makespan, units)} of the samples that are looked at"
    busiest = max(steady.busy, key=lambda name: steady.busy[name])
    yield "busiest", f"{shown_name(busiest)}: {format_time(steady.busy[busiest], units)} of each period"
    yield "idle", _bubbles(steady.bubble)
    yield from _of_each_period(steady, units)


def _of_each_period(steady: Steady, units: Units) -> Iterator[tuple[str, str]]:
    for label, (name, size) in _labelled("each period", steady.peaks.items()):
        yield label, f"{shown_name(name)}: holds {format_budget(size, units, both=True)} at most"


def _joined(counts: Sequence[int]) -> str:
    shown = [str(count) for count in counts]
    if len(shown) > MOST_STAGES:
        shown = [*shown[: MOST_STAGES - 1], f"... {shown[-1]}"]
    return ", ".join(shown)


def _bubbles(bubble: Mapping[str, float]) -> str:
    waits = [f"{shown_name(name)} {percent(share, signed=False)}" for name, share in bubble.items()]
    if len(waits) > MOST_DEVICES:
        waits = [*waits[: MOST_DEVICES - 1], f"... {waits[-1]}"]
    return ", ".join(waits)


def _without_schedule(result: Result, option: str) -> Iterator[tuple[str, str]]:
    units = result.units
    for label, (name, size) in _labelled("capacity", _capacities(result)):
        yield label, f"{name}: {format_budget(size, units, both=True)}"
    yield from least_budget_lines(result)
    yield from shortfall_lines(result, option=option)


def _capacities(result: Result) -> list[tuple[str, int]]:
    """Return the name and the capacity of each limited memory; the devices of a pipeline once if they are alike."""
    memories, named = result.machine.memories, list[tuple[str, int]]()
    devices = device_memories(result.instance, result.machine) if result.instance is not None else set[int]()
    alike = len(devices) > 1 and len({memories[index].capacity for index in devices}) == 1
    for index, memory in enumerate(memories):
        again = alike and index in devices
        if memory.capacity is not None and not (again and index != min(devices)):
            named.append(("every device" if again else shown_name(memory.name), memory.capacity))
    return named


def least_budget_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the minimum budget, with the class of schedules for which it is proved; unproved, the smallest found."""
    least, units = result.least_budget, result.units
    if least is None:
        return
    name = result.machine.memories[least.memory].name
    of_pipeline = result.instance is not None and result.instance.budgets_are_for_all
    where = "every device" if of_pipeline and least.sufficient else shown_name(name)
    size = format_budget(least.size, units, both=True, enough=least.sufficient)
    # The status names its scope already.
    named = least.scope is not None and least.scope in (ALL_SCHEDULES, result.scope)
    # A portfolio's minimum budget may come from any algorithm, so none is named.
    anybody = least.scope is None and result.algorithm == PORTFOLIO
    whose = "" if named or anybody else f" for {least.scope or result.algorithm}"
    cause = _set_by(result, least)
    bare = of_pipeline or len(result.machine.memories) == 1
    ask = f"budget {'' if bare else f'{name}='}{budget_to_paste(least.size, units, exact=not least.sufficient)}"
    if least.sufficient:
        label = "smallest found" if least.scope is None else "minimum budget"
        yield label, f"{where}: {size}{whose}{cause and f', set by {cause}'}"
        proved = {ALL_SCHEDULES: "proved: no schedule needs less", None: "smaller ones may exist"}
        more = proved.get(least.scope, "others may need less")
        yield "", f"a schedule is found with {ask}; {more}"
    elif least.scope == ALL_SCHEDULES:
        yield "minimum budget", f"{shown_name(name)}: at least {size}{cause and f', needed by {cause}'}"
        yield "", f"a lower bound: every schedule needs {ask} or more"
    else:
        class_ = least.scope or f"what {result.algorithm} searches"
        yield (
            "minimum budget",
            f"{shown_name(name)}: within {class_}, at least {size}{cause and f', needed by {cause}'}",
        )
        yield "", "a lower bound for these schedules only: others may do with less"


def _set_by(result: Result, least: LeastBudget) -> str:
    """Name the step that sets a minimum budget; empty if unknown."""
    task = least.task
    if task is None:
        bound = result.memory_bounds.get(result.machine.memories[least.memory].name)
        if bound is None or bound.size != least.size:
            return ""
        if bound.task is None:
            return "the initial or final contents"
        task = bound.task
    return f"task {shown_task(result.graph, task)}"


def _lower_bound(result: Result) -> str:
    text = format_time(result.lower_bound, result.units)
    if result.gap is None:
        return text
    # Bounds are rounded down: the rounding error is not a gap.
    if result.gap <= ROUNDING:
        return f"{text}, reached"
    return f"{text}, gap {percent(result.gap, signed=False)}{_not_counted(result)}"


def _not_counted(result: Result) -> str:
    """Say what a lower bound of known origin disregards: copies, if the schedule has any, and who may run what."""
    report, machine = result.report, result.machine
    if report is None or result.orders is not None or report.steady is not None or not any(report.transferred.values()):
        return ""
    sources = {
        bound.source for bound in result.bounds if (bound.scope, bound.value) == (ALL_SCHEDULES, result.lower_bound)
    }
    if OWN_SOURCES[0] not in sources or result.lower_bound == result.transfer_bound:
        return ""
    copied = any(
        report.transferred[machine.link_name(k)] for k, link in enumerate(machine.links) if link.source != link.target
    )
    told = ["shares the work among all processors"] if len(machine.processors) > 1 else []
    told += ["ignores copies between memories"] if copied else []
    return f"; the bound {' and '.join(told)}" if told else ""


def traffic(report: Report, machine: Machine, units: Units, *, idle: bool = True) -> Iterator[tuple[str, str]]:
    """Yield lines on the links, and the idle time of each resource if links or several resources exist.

    Links, processors and channels that the schedule does not use are left out.
    """
    many = len(machine.links) > MOST_DEVICES
    moved = [item for item in report.transferred.items() if item[1]]
    for label, (link, size) in _labelled("transferred", moved):
        yield label, f"{shown_name(link)}: {format_size(size, units, both=True)}"
    if not idle or (not machine.links and len(machine.resources) < 2):
        return
    used = {name for name, time in report.busy.items() if time}
    shown = used & {processor.name for processor in machine.processors} if many else used
    waits = [item for item in report.idle.items() if item[0] in shown]
    moving = transfer_waits(report)
    for label, (resource, waited) in _labelled("idle time", waits):
        told = waited_text(waited, moving.get(resource, 0), report.makespan, units)
        yield label, f"{shown_name(resource)}: {told}"
    working = [(name, time) for name, time in report.overlap.items() if report.busy[name] and not many]
    for label, (channel, time) in _labelled("overlap", working):
        busy = report.busy[channel]
        yield label, f"{shown_name(channel)}: {format_time(time, units)} of {format_time(busy, units)} with computation"


def transfer_waits(report: Report) -> dict[str, Number]:
    """Return the time in which each processor runs no task, because it is the channel of a transfer."""
    subject = report.subject
    if subject is None:
        return {}
    machine, steps = subject.machine, subject.steps
    held = {resource for resources in machine.held_by_link for resource in resources}
    blocked = [index for index in range(len(machine.processors)) if index in held]
    if not blocked:
        return {}
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    length = (report.end - report.start)[runs]
    first = np.ones(len(runs), dtype=bool)  # a run without processors is on the first one
    found: dict[str, Number] = {}
    on = None if steps.on is None else steps.on.gather(runs)
    if on is not None:
        first[on.rows] = False
    for index in blocked:
        here = first.copy() if index == 0 else np.zeros(len(runs), dtype=bool)
        if on is not None:
            here[on.rows[on.items == index]] = True
        name = machine.processors[index].name
        found[name] = report.busy[name] - length[here].sum().item()
    return {name: time for name, time in found.items() if time > 0}


def waited_text(idle: Number, moving: Number, makespan: Number, units: Units) -> str:
    """Describe the time in which a resource runs nothing, and how much of it is transfers that occupy it."""
    share = _share(idle + moving, makespan)
    text = f"{format_time(idle + moving, units)}{share and f', {share}'}"
    return f"{text}, of it {format_time(moving, units)} in transfers" if moving else text


def _labelled(label: str, items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Pair the first item with the label and the others with nothing."""
    return ((label if k == 0 else "", item) for k, item in enumerate(items))


def _share(part: Number, whole: Number) -> str:
    return percent(part / whole, signed=False) if whole else ""


def peaks(report: Report, units: Units, causes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a line for the peak of each memory in use, with the readable name of the step that sets it."""
    used = [item for item in report.peaks.items() if item[1].size]
    for label, (name, peak) in _labelled("peak memory", used or [*report.peaks.items()][:1]):
        size = format_budget(peak.size, units, both=True)
        yield label, f"{shown_name(name)}: {size}{_cause(peak.size, causes[name])}"


def _cause(size: int, step: str) -> str:
    return f", set by {step}" if size else ""
