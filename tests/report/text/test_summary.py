from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.errors import InstanceError
from remat.graph.bounds import MemoryBound
from remat.instance import load
from remat.instance.lowering import lower
from remat.plugin.proposal import Bound, LeastBudget, Status, Termination, Untried
from remat.report.text.readable_names import shown_in_module, shown_name, shown_task
from remat.report.text.summary import WIDTH, figures, lines_of, summary, table, transfer_waits
from remat.solving.result import Result
from tests import places

CHAIN: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "net",
    "input_size": "1MB",
    "stages": [{"forward_time": "1ms", "backward_time": "2ms", "output_size": "3MB", "saved_size": "4MB", "repeat": 4}],
}
STORAGE: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "adjoint",
    "steps": 9,
    "units": {"time": "unit", "memory": "unit"},
    "storage": [{"name": "disk", "slots": 2, "write_time": 1, "read_time": 1, "channel": "io"}],
}


@pytest.fixture(scope="module")
def kept() -> Result:
    return remat.solve(CHAIN, algorithm="keep-all", budget="40MB")


def lines(result: Result) -> dict[str, str]:
    """Return the table's first line of each label."""
    found: dict[str, str] = {}
    label = ""
    indent = len(summary(result).splitlines()[0]) - len(summary(result).splitlines()[0].split("  ", 1)[1].lstrip())
    for line in summary(result).splitlines():
        label = line[:indent].strip() or label
        found[label] = f"{found[label]} {line[indent:]}" if label in found else line[indent:]
    return found


NAMED = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "tasks": [
        {"id": "a", "time": 1, "size": 4, "workspace": 5, "origin": {"module": "stem.conv", "op": "conv"}},
        {"id": "stem.pool", "time": 1, "reads": ["a"], "size": 1, "origin": {"module": "stem.pool"}},
        {"id": "c", "time": 1, "reads": ["a", "stem.pool"], "size": 1},
    ],
    "outputs": ["c"],
}


def test_a_summary_has_the_figures_of_a_schedule(kept: Result) -> None:
    found = lines(kept)
    assert found["instance"] == "net"
    assert found["algorithm"] == "keep-all"
    assert found["status"] == "optimal"
    assert found["makespan"] == "12 ms"
    assert found["overhead"] == "0 % over the 12 ms without recomputation"
    assert found["recompute time"] == "0 s, 0 % of the time of all runs"
    assert found["peak memory"].startswith("memory: 35 MB (33.38 MiB) of 40 MB (38.15 MiB), set by B4")
    assert found["lower bound"] == "12 ms, reached"
    assert found["steps"] == "9"
    assert "solve time" in found
    assert not {"other bounds", "transferred", "idle time", "notes", "minimum budget"} & found.keys()


def test_recomputation_and_a_class() -> None:
    result = remat.solve(CHAIN, algorithm="rotor", budget="25MB")
    assert result.makespan is not None
    found = lines(result)
    assert found["overhead"].startswith("+")
    assert " % over the 12 ms" in found["overhead"]
    assert " gap " in found["lower bound"]
    assert "memory-persistent schedules (rotor" in found["other bounds"]


def test_links_and_idle_time() -> None:
    found = lines(remat.solve(STORAGE, algorithm="revolve"))
    assert "working: 2 of 2, set by" in found["peak memory"]
    assert "disk: 2 of 2, set by copy of x" in found["peak memory"]
    assert "working->disk: " in found["transferred"]
    assert "disk->working: " in found["transferred"]
    assert "processor: " in found["idle time"]
    assert "io: " in found["idle time"]


def test_a_processor_that_waits_for_transfers_is_idle() -> None:
    storage = [{"name": "ram", "slots": 3}, {"name": "disk", "write_time": 3, "read_time": 2}]
    loop = remat.adjoint(40, forward_time=1, backward_time=2, storage=storage, time_unit="unit")
    result = remat.solve(loop, algorithm="disk-revolve")
    assert result.report is not None
    assert result.report.idle["processor"] == 0  # its channel is busy
    runs = sum(step.end - step.start for step in _runs(result))
    waits = result.makespan - runs
    assert waits > 0
    share = f"{100 * waits / result.makespan:.3g}"
    assert lines(result)["idle time"] == f"processor: {waits:g}, {share} %, of it {waits:g} in transfers"
    assert f"processor: {waits:g}, {share} %, of it {waits:g} in transfers" in str(remat.verify(loop, result))
    kept = remat.solve(CHAIN, algorithm="keep-all")
    assert transfer_waits(kept.report) == {}


def _runs(result: Result) -> list[Any]:
    """The runs of tasks, with start and end."""
    timeline = result.timeline()
    listed = zip(timeline["kind"], timeline["start"], timeline["end"], strict=True)
    return [SimpleNamespace(start=start, end=end) for kind, start, end in listed if kind == "run"]


def test_infeasible_and_sufficient() -> None:
    found = lines(remat.solve(CHAIN, algorithm="keep-all", budget=34_999_999))
    assert found["status"] == "unknown, infeasible within the keep-all schedule"
    assert found["capacity"] == "memory: 35 MB (33.38 MiB)"
    assert found["minimum budget"].startswith("memory: 35 MB (33.38 MiB), set by task B")
    assert found["minimum budget"].endswith("a schedule is found with budget 35MB; others may need less")
    assert "makespan" not in found


def test_infeasible_by_a_bound(kept: Result) -> None:
    answer = replace(
        kept,
        status=Status.INFEASIBLE,
        scope="all schedules",
        report=None,
        columns=None,
        least_budget=LeastBudget(17, None, False, scope="all schedules"),
        memory_bounds={"memory": MemoryBound(17, None)},
        termination=Termination.COMPLETED,
    )
    found = lines(answer)
    assert found["status"] == "infeasible, proved over all schedules"
    assert "at least 17 B, needed by the initial or final contents" in found["minimum budget"]
    assert "a lower bound: every schedule needs budget 17 or more" in found["minimum budget"]
    assert "lower bound" not in found  # there is no schedule that it could bound


@pytest.mark.parametrize(
    ("scope", "least", "said"),
    [
        ("all schedules", LeastBudget(18, None, False, 0, "all schedules"), "at least 18 B a lower bound: every"),
        ("all schedules", LeastBudget(17, None, False, 0, "all schedules"), "at least 17 B, needed by task F2 a lower"),
        ("some", LeastBudget(18, None, False, 0, "some"), "within some, at least 18 B a lower bound for these"),
        ("some", LeastBudget(18, 0, False, 0, "some"), "at least 18 B, needed by task F1 a lower bound for these"),
        ("some", LeastBudget(18, 0, True, 0, "some"), "18 B, set by task F1 a schedule is found with budget 18"),
        ("all schedules", LeastBudget(18, None, True, 0, "some"), "18 B for some a schedule is found with"),
        ("all schedules", LeastBudget(18, None, True), "18 B for keep-all a schedule is found with"),
        (None, LeastBudget(18, None, True), "18 B for keep-all a schedule is found with"),
        (None, LeastBudget(18, None, False), "within what keep-all searches, at least 18 B a lower bound for these"),
    ],
)
def test_whose_least_budget_it_is(scope: str | None, least: LeastBudget, said: str, kept: Result) -> None:
    status = Status.UNKNOWN if scope is None else Status.INFEASIBLE
    bounds = {"memory": MemoryBound(17, 1)}
    answer = replace(kept, status=status, scope=scope, report=None, least_budget=least, memory_bounds=bounds)
    label = "smallest found" if least.sufficient and least.scope is None else "minimum budget"
    found = lines(answer)[label]
    assert f"memory: {said}" in found or (said.startswith("at least") and said in found)
    assert "resident" not in found


def test_an_unknown_answer_has_no_budget(kept: Result) -> None:
    answer = replace(kept, status=Status.UNKNOWN, report=None, columns=None, termination=Termination.TIME_LIMIT)
    found = lines(answer)
    assert found["status"] == "unknown (time limit)"
    assert "minimum budget" not in found


@pytest.mark.parametrize(
    ("asked", "default", "shown"),
    [
        ({}, 60.0, "default time limit, 60 s: time_limit"),
        ({"time_limit": 7}, None, "time limit"),
        ({"algorithm": "rotor"}, None, "time limit"),
    ],
)
def test_a_time_limit_that_nobody_gave_is_named(
    asked: dict[str, Any], default: float | None, shown: str, kept: Result
) -> None:
    assert kept.instance is not None
    result = remat.solve(kept.instance, **asked)
    assert result.default_limit == default
    ended = replace(result, termination=Termination.TIME_LIMIT, solve_seconds=default or 0.0)
    assert lines(ended)["status"].endswith(f"({shown})")
    command_line = summary(ended, option="--budget ")
    assert f"({shown.replace('time_limit', '--time-limit')})" in command_line


def test_other_bounds_options_seed_and_notes(kept: Result) -> None:
    rich = replace(
        kept,
        status=Status.FEASIBLE,
        optimal_within="a class",
        options={"slots": 7, "mode": "fast"},
        seed=3,
        lower_bound=0.006,
        bounds=(
            Bound(0.008, "a class", "one"),
            Bound(0.006, "all schedules", "two"),
            Bound(0.007, "more", "keep-all"),
            Bound(0.007, "a class of another algorithm", "rotor"),
            Bound(0.006, "no more than all schedules", "four"),
            Bound(0.005, "less than all schedules", "five"),
        ),
        notes=("rounded", "twice"),
    )
    found = lines(rich)
    assert found["algorithm"] == "keep-all (slots=7, mode=fast), seed 3"
    assert found["status"] == "feasible, optimal within a class"
    assert found["lower bound"] == "6 ms, gap 50 %"
    assert found["other bounds"] == "8 ms for a class (one) 7 ms for more (keep-all)"
    assert found["notes"] == "rounded twice"


def test_a_bound_for_the_reference_order_is_not_shown_beside_another_order() -> None:
    graph = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": [
            {"id": "a", "time": 1, "size": 1},
            {"id": "b", "time": 1, "size": 1},
            {"id": "c", "time": 1, "reads": ["a", "b"], "size": 1},
        ],
        "outputs": ["c"],
    }
    orders = {True: [{"run": "a"}, {"run": "b"}, {"run": "c"}], False: [{"run": "b"}, {"run": "a"}, {"run": "c"}]}
    for listed, steps in orders.items():
        result = remat.schedule_of(graph, steps)
        bound = Bound(2.5, "schedules in the reference order", result.algorithm)
        found = lines(replace(result, status=Status.FEASIBLE, lower_bound=2, bounds=(bound,), optimal_within=None))
        assert ("other bounds" in found) is listed


def test_an_answer_without_a_proof_says_why_the_search_ended(kept: Result) -> None:
    assert "stopped" not in lines(kept)  # proved
    open_ = replace(kept, status=Status.FEASIBLE, optimal_within=None, lower_bound=0.006)
    assert lines(open_)["stopped"] == "keep-all has ended, without a proof; algorithm auto asks others, too"
    auto = replace(open_, asked="auto", default_limit=60.0)
    ended = "all algorithms that suit the instance have ended, without a proof"
    assert lines(auto)["stopped"] == ended  # nothing is left to try
    longer = replace(auto, untried=Untried(("rotor",), ("poet",)))
    told = "longer searches of rotor and 1 algorithm for other instances"
    assert lines(longer)["stopped"] == f"{ended}; with a time limit, auto also runs {told}"
    assert lines(replace(longer, default_limit=None))["stopped"] == ended
    for other in (
        replace(auto, optimal_within="a class"),  # the status names it
        replace(auto, termination=Termination.TIME_LIMIT),
        replace(auto, termination=Termination.GAP),
    ):
        assert "stopped" not in lines(other)


def test_a_makespan_of_nothing() -> None:
    instance = {"schema": "remat.instance/1", "kind": "dag", "tasks": [{"id": "t", "time": 0, "writes": []}]}
    found = lines(remat.solve(instance, algorithm="keep-all"))
    assert found["makespan"] == "0 s"
    assert "overhead" not in found
    assert found["peak memory"] == "memory: 0 B"
    assert found["recompute time"] == "0 s"


def test_hostile_names_stay_on_their_line(kept: Result) -> None:
    hostile = replace(kept, instance_name="a\x1b[31m\n\u202eb" + "c" * 300, notes=("word " * 60, "x" * 250, "\x07"))
    text = summary(hostile)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert all(line.isprintable() for line in text.splitlines())
    assert "a\\u001b[31m\\n\\u202eb" in text


def test_tables_align_labels_and_texts() -> None:
    assert table([]) == ""
    assert table([("a", "1"), ("", "2"), ("long label", "")]) == "a           1\n            2\nlong label"


@given(
    lines=st.lists(
        st.tuples(st.text("ab.", max_size=140), st.lists(st.text("xyz", min_size=1, max_size=30), max_size=9)),
        max_size=6,
    ),
    width=st.sampled_from((1, 2, 9, 40, 100)),
)
@settings(max_examples=60, deadline=None)
def test_tables_fit_whatever_their_labels(lines: list[tuple[str, list[str]]], width: int) -> None:
    """Labels and words appear whole or divided, in their order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("remat.report.text.summary.text_width", lambda most: min(most, width))
        shown = table((label, " ".join(words)) for label, words in lines)
    assert all(len(row) <= width for row in shown.splitlines())
    assert "".join(shown.split()) == "".join(label + "".join(words) for label, words in lines)


def test_long_names_are_shortened() -> None:
    assert shown_name("x") == "x"
    shown = shown_name("a" * 40 + "b" * 40)
    assert shown.startswith("aaa")
    assert "..." in shown
    assert shown.endswith("bbb")
    assert len(shown) <= 48


def test_tasks_are_named_with_their_modules() -> None:
    graph = lower(load(NAMED))
    assert shown_task(graph, graph.task("a")) == "a of stem.conv"
    assert shown_task(graph, graph.task("stem.pool")) == "stem.pool"
    assert shown_task(graph, graph.task("c")) == "c"
    assert shown_in_module("a" * 80, "b" * 80) == f"{shown_name('a' * 80)} of {shown_name('b' * 80)}"
    assert shown_in_module("a", "b\x1b[2J") == "a of b\\u001b[2J"


def test_what_sets_a_figure_is_named_with_its_module() -> None:
    assert "set by a of stem.conv\n" in summary(remat.solve(NAMED))
    assert remat.solve(NAMED).peak_step("memory") == "a"  # what programs read is the name
    found = remat.solve(NAMED, algorithm="keep-all", budget=8)
    assert "set by task a of stem.conv\n" in summary(found)
    assert found.to_dict()["least_budget"]["task"] == "a"


def test_figures_have_the_measurements(kept: Result) -> None:
    document = figures(kept)
    assert document["makespan"] == kept.makespan
    assert document["no_recompute_time"] == kept.no_recompute_time
    assert document["memory_bounds"]["memory"]["task"].startswith("B")
    assert document["idle"] == {"processor": 0}
    assert document["peak_step"]["memory"].startswith("B")
    answer = figures(remat.solve(CHAIN, algorithm="keep-all", budget=1))
    assert "gap" not in answer
    assert answer["least_budget"]["size"] == 35_000_000
    schema = jsonschema.Draft202012Validator(
        json.loads((places.ROOT / "docs" / "schema" / "remat.summary-1.json").read_text())
    )
    for found in (document, answer):
        assert list(schema.iter_errors(json.loads(json.dumps(found)))) == []
        # The summary states its kind and is not accepted as a schedule.
        with pytest.raises(InstanceError, match="the figures of a schedule without its steps"):
            remat.verify(CHAIN, found | {"steps": []})
    assert not schema.is_valid(document | {"schema": "remat.schedule/1"})
    assert not schema.is_valid({key: document[key] for key in document if key != "gap"})


def test_the_energy_of_a_schedule():
    tasks = [{"id": "a", "time": 1, "energy": 1500, "size": 1}, {"id": "b", "time": 1, "energy": 0.5, "size": 1}]
    result = remat.solve({"schema": "remat.instance/3", "kind": "dag", "tasks": tasks})
    assert dict(lines_of(result))["energy"] == "1500.5"
    assert figures(result)["energy"] == 1500.5
    schema = json.loads((places.ROOT / "docs" / "schema" / "remat.summary-1.json").read_text())
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(json.dumps(figures(result))))
    plain = [{key: value for key, value in task.items() if key != "energy"} for task in tasks]
    without = remat.solve({"schema": "remat.instance/3", "kind": "dag", "tasks": plain})
    assert "energy" not in dict(lines_of(without)) | figures(without)


def test_a_device_that_runs_nothing_has_no_bubble():
    """Its first operation, from which a bubble counts, does not exist; its idle time is part of the mean."""
    step = remat.pipeline(
        forward_time=[1, 1],
        backward_time=2,
        output_size=1,
        devices=3,
        micro_batches=2,
        time_unit="unit",
        size_unit="unit",
    )
    lines = remat.solve(step, algorithm="ftpipe").summary().splitlines()
    assert "bubble          gpu0 33.3 %, gpu1 0 % idle from the first to the last operation" in lines
