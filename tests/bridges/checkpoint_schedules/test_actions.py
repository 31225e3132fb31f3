"""Plans as actions of the package checkpoint_schedules, executed by its conventions; without it, too."""

import importlib.util
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat import OptionError
from remat.bridges.checkpoint_schedules.actions import BridgeAction, Free, Read, Write, storage_types, tidy
from remat.schedule.document import parse_steps
from remat.testing import strategies
from remat.time_loops import actions_for_checkpoint_schedules, to_checkpoint_schedules
from tests.fuzz import cases

UNIT = {"time": "unit", "memory": "unit"}
HAS_PACKAGE = importlib.util.find_spec("checkpoint_schedules") is not None


def loop(steps, *levels, **more):
    storage = {"storage": list(levels)} if levels else {}
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps, **storage, **more}


def level(name, slots=None, **more):
    return {"name": name, **({} if slots is None else {"slots": slots}), **more}


RAM, DISK = level("ram", 3), level("disk", write_time=2, read_time=1)


class Executor:
    """Executes actions like the package's users, with working memory, two storages, a forward and an adjoint.

    Restart data and tapes are sets of steps: from a checkpoint that was written during the forward from a to b, the
    executor can advance to any step up to b.
    """

    def __init__(self, steps):
        self.steps, self.left, self.at = steps, steps, 0
        self.restart, self.tapes = set(), set()
        self.storage = {"RAM": {}, "DISK": {}}
        self.peak = {"RAM": 0, "DISK": 0}
        self.forwards = self.reads = self.writes = 0
        self.swept = self.over = False

    def do(self, name, *arguments):
        assert not self.over
        getattr(self, name.lower())(*arguments)
        for kind, held in self.storage.items():
            self.peak[kind] = max(self.peak[kind], len(held))

    def forward(self, first, last, write_restart, write_tapes, storage):
        assert self.at == first < last <= self.left
        self.forwards += last - first
        self.at = last
        # A forward leaves nothing of what working memory held.
        steps = set(range(first, last))
        restart, tapes = steps if write_restart else set(), steps if write_tapes else set()
        if storage == "WORK":
            assert not write_restart
            self.restart, self.tapes = set(), tapes
        else:
            assert restart or tapes
            assert first not in self.storage[storage]
            self.storage[storage][first] = (restart, tapes)
            self.writes += 1
            self.restart, self.tapes = set(), set()

    def load(self, step, source, target):
        assert target == "WORK"
        assert not self.restart
        assert not self.tapes
        assert step < self.left
        self.restart, self.tapes = (set(part) for part in self.storage[source][step])
        assert self.restart or self.tapes
        self.reads += 1
        self.at = None
        if self.restart:
            self.at = step
            assert self.restart >= set(range(step, self.left))

    def copy(self, step, source, target):
        self.load(step, source, target)

    def move(self, step, source, target):
        self.load(step, source, target)
        del self.storage[source][step]

    def reverse(self, last, first, clears):
        assert self.swept
        assert last == self.left
        assert first == last - 1
        assert first in self.tapes
        self.left = first
        if clears:
            self.tapes = set()

    def endforward(self):
        assert self.at == self.steps
        assert not self.swept
        self.swept = True

    def endreverse(self):
        assert self.left == 0
        assert self.storage == {"RAM": {}, "DISK": {}}
        self.over = True


def executed(result):
    """Execute a result without the package."""
    steps = sum(action.name == "Reverse" for action in actions_for_checkpoint_schedules(result))
    executor = Executor(steps)
    for action in actions_for_checkpoint_schedules(result):
        executor.do(action.name, *action.arguments)
    assert executor.over
    return executor


def executed_by_package(result):
    """Execute the package's own objects, and watch what its schedules say of themselves."""
    package = pytest.importorskip("checkpoint_schedules")
    schedule = to_checkpoint_schedules(result)
    assert isinstance(schedule, package.CheckpointSchedule)
    assert schedule.n == schedule.r == 0
    executor = Executor(schedule.max_n)
    for action in schedule:
        arguments = [value.name if isinstance(value, package.StorageType) else value for value in action.args]
        executor.do(type(action).__name__, *arguments)
        if isinstance(action, package.Forward) and action.n1 == schedule.max_n:
            schedule.finalize(action.n1)
        assert executor.at is None or executor.at == schedule.n
        assert schedule.max_n - executor.left == schedule.r
        assert schedule.is_exhausted == executor.over
        if isinstance(action, package.EndReverse):
            break
    assert executor.over
    for kind, most in executor.peak.items():
        assert schedule.uses_storage_type(package.StorageType[kind]) == (most > 0)
    assert not schedule.uses_storage_type(package.StorageType.NONE)
    with pytest.raises(StopIteration):
        next(schedule)
    return executor


def slots_of(result, name):
    return result.peak_memory.get(name, 0)


CASES = {
    "revolve": (loop(40, RAM), {}),
    "revolve-in-one-memory": (loop(40), {"budget": 6, "algorithm": "revolve"}),
    "multistage": (loop(40, RAM, level("disk", 4, write_time=2)), {}),
    "h-revolve": (loop(60, RAM, level("disk", 4, write_time=2, read_time=1)), {}),
    "disk-revolve": (loop(60, RAM, DISK), {}),
    "periodic-disk-revolve": (loop(60, RAM, DISK), {}),
    "two-level": (loop(60, RAM, DISK), {}),
    "treeverse": (loop(40, RAM), {}),
    "walther-griewank": (loop(20, RAM), {}),
    "adjoint-dp": (loop(20), {"budget": 5}),
    "online-revolve": (loop(60, RAM), {}),
    "online-in-one-memory": (loop(60), {"budget": 6, "algorithm": "online-revolve"}),
    "store-all": (loop(9, level("ram", 9)), {}),
    "store-all-in-one-memory": (loop(9), {"algorithm": "store-all"}),
    "recompute-all": (loop(9, level("disk", 1)), {}),
    "mixed": (loop(12, level("disk", 4), tape_size=1), {}),
    "mixed-in-one-memory": (loop(12, tape_size=1), {"budget": 8, "algorithm": "mixed"}),
    "revolve-with-tapes": (loop(12, RAM, tape_size=1), {"algorithm": "revolve"}),
    "keep-all": (loop(7), {}),
    "keep-all-tapes": (loop(7, tape_size=1), {"algorithm": "keep-all"}),
}
RUNNERS = [executed, executed_by_package]


def solved(name):
    document, more = CASES[name]
    return remat.solve(document, **{"algorithm": name, **more})


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("name", CASES)
def test_plans_are_executed(name, run):
    result = solved(name)
    executor = run(result)
    n = executor.steps
    taped = "tape_size" in CASES[name][0]
    # If tapes are not separate values, each backward recomputes its tape: one more forward per step.
    forwards = sum(task.startswith("F") for task in (getattr(step, "task", "") for step in result.steps))
    assert executor.forwards == forwards + (0 if taped else n)
    for memory, kind in (("ram", "RAM"), ("disk", "DISK")):
        if memory in result.peak_memory:
            assert executor.peak[kind] <= slots_of(result, memory)
    if result.machine.memories[0].name == "memory":
        assert executor.peak["RAM"] <= slots_of(result, "memory") - 1
        assert executor.peak["DISK"] == 0


@pytest.mark.parametrize("n", [1, 2, 3, 5, 11])
@pytest.mark.parametrize("run", RUNNERS)
def test_small_plans_of_every_algorithm(n, run):
    for slots in (1, 2, 4):
        for initial in ("live", "ram", "disk"):
            document = loop(n, level("ram", slots), level("disk", n, write_time=1), initial_state=initial)
            for name in ("revolve", "multistage", "h-revolve", "disk-revolve", "two-level", "online-revolve"):
                executor = run(remat.solve(document, algorithm=name))
                assert executor.steps == n
        for document, name in (
            (loop(n, level("disk", slots), tape_size=1), "mixed"),
            (loop(n, level("disk", slots)), "treeverse"),
        ):
            assert run(remat.solve(document, algorithm=name)).steps == n


def test_revolve_spelt_out():
    result = remat.solve(loop(4, level("ram", 2)), algorithm="revolve")
    told = [(action.name, *action.arguments) for action in actions_for_checkpoint_schedules(result)]
    assert told == [
        ("Forward", 0, 1, True, False, "RAM"),
        ("Forward", 1, 3, True, False, "RAM"),
        ("Forward", 3, 4, False, True, "WORK"),
        ("EndForward",),
        ("Reverse", 4, 3, True),
        ("Copy", 1, "RAM", "WORK"),
        ("Forward", 1, 2, False, False, "WORK"),
        ("Forward", 2, 3, False, True, "WORK"),
        ("Reverse", 3, 2, True),
        ("Move", 1, "RAM", "WORK"),
        ("Forward", 1, 2, False, True, "WORK"),
        ("Reverse", 2, 1, True),
        ("Move", 0, "RAM", "WORK"),
        ("Forward", 0, 1, False, True, "WORK"),
        ("Reverse", 1, 0, True),
        ("EndReverse",),
    ]


def test_a_stored_tape_spelt_out():
    result = remat.solve(loop(2, level("disk", 1), tape_size=1), algorithm="mixed")
    told = [(action.name, *action.arguments) for action in actions_for_checkpoint_schedules(result)]
    assert told == [
        ("Forward", 0, 1, False, True, "DISK"),
        ("Forward", 1, 2, False, True, "WORK"),
        ("EndForward",),
        ("Reverse", 2, 1, True),
        ("Move", 0, "DISK", "WORK"),
        ("Reverse", 1, 0, True),
        ("EndReverse",),
    ]


def test_online_writes_only_what_is_read():
    result = remat.solve(loop(200, level("ram", 5)), algorithm="online-revolve")
    written = sum(1 for step in result.steps if getattr(step, "target", "") == "ram")
    assert executed(result).writes < written


def drawn_plans(count):
    return lambda test: settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )(given(strategies.adjoints(largest=8), st.integers(1, 9))(test))


@drawn_plans(5)
def test_drawn_plans_are_executed_or_refused(document, budget):
    """Schedules of every algorithm are executed without breaking a rule, or refused with a reason."""
    check_plans(document, budget)


@pytest.mark.slow
@drawn_plans(40)
def test_more_drawn_plans_are_executed_or_refused(document, budget):
    check_plans(document, budget)


WORK = cases.WORK | {"adjoint-best": cases.WORK["adjoint-best"] | {"work": 0}}


def check_plans(document, budget):
    refused = []
    for algorithm in remat.algorithms(kind="adjoint"):
        try:
            result = remat.solve(
                document, algorithm=algorithm.name, budget=budget, options=WORK.get(algorithm.name), time_limit=5
            )
        except OptionError:
            continue
        if result.columns is None:
            continue
        try:
            executor = executed(result)
        except OptionError as error:
            refused.append(str(error))
            continue
        steps = document["steps"]
        assert executor.steps == (steps if isinstance(steps, int) else len(steps))
    assert all("checkpoint_schedules" in text for text in refused)


# --- which storage is which -------------------------------------------------------------------------------------------


def test_levels_get_their_storage_types():
    assert storage_types(["ram"], None) == {"ram": "RAM"}
    assert storage_types(["Disk"], None) == {"Disk": "DISK"}
    assert storage_types(["a", "b"], None) == {"a": "RAM", "b": "DISK"}
    assert storage_types(["a"], {"a": "DISK"}) == {"a": "DISK"}
    for levels, chosen, text in (
        (["a", "b", "c"], None, "knows two storage types, RAM and DISK, and the plan uses 3 levels: a, b, c"),
        (["a"], {"b": "RAM"}, "unknown level 'b'; the plan has a"),
        (["a"], {"a": "TAPE"}, "level 'a' is RAM or DISK, not 'TAPE'"),
        (["a", "b"], {"a": "RAM"}, "say whether level 'b' is RAM or DISK"),
        (["a", "b"], {"a": "RAM", "b": "RAM"}, "could not tell them apart"),
    ):
        with pytest.raises(OptionError, match=re.escape(text)):
            storage_types(levels, chosen)


def test_three_levels_are_refused():
    levels = [level("ram", 1), level("ssd", 2, write_time=1), level("tape", write_time=2, read_time=2)]
    result = remat.solve(loop(60, *levels), algorithm="h-revolve")
    with pytest.raises(OptionError, match="knows two storage types"):
        actions_for_checkpoint_schedules(result)
    # A level that the plan does not use is no matter.
    assert executed(remat.solve(loop(60, *levels), algorithm="revolve")).peak == {"RAM": 1, "DISK": 0}


def test_levels_can_be_chosen():
    result = remat.solve(loop(9, level("nvme", 3)), algorithm="revolve")
    told = list(actions_for_checkpoint_schedules(result, storage={"nvme": "DISK"}))
    assert told[0] == BridgeAction("Forward", (0, 3, True, False, "DISK")) or told[0].arguments[4] == "DISK"


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_no_plan_of_an_adjoint():
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1}
    chain["stages"] = [{"forward_time": 1, "backward_time": 1, "output_size": 1, "repeat": 3}]
    tree = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}
    for document in (chain, tree):
        with pytest.raises(OptionError, match="for adjoints"):
            actions_for_checkpoint_schedules(remat.solve(document))
    with pytest.raises(OptionError, match="no schedule to convert: the result is infeasible"):
        actions_for_checkpoint_schedules(remat.solve(loop(5, level("ram", 0)), algorithm="revolve"))


def by_hand(document, steps):
    """Return a result with hand-written steps, verified on their machine if one is given."""
    base = remat.solve(document, algorithm="keep-all", budget={"": 10**6})
    schedule = {"schema": "remat.schedule/1", "steps": steps}
    columns = parse_steps(schedule, base.graph, base.machine, base.units)
    report = remat.verify(document, schedule | {"machine": base.machine.to_document()})
    assert report.ok, report.violations
    return replace(base, columns=columns)


def run(task, *drop):
    return {"run": task, "drop": list(drop)}


def move(value, source, target, *, drop=False):
    return {"copy": value, "from": source, "to": target, "drop": drop}


TWO = loop(3, level("ram", 3), level("disk", 3))
WIDE = {
    "machine": {
        "memories": [{"name": "working"}, {"name": "ram"}],
        "processors": [{"name": "cpu", "memory": "working"}],
        "links": [],
    }
}
for _ends in (("working", "ram"), ("ram", "working")):
    WIDE["machine"]["links"].append({"source": _ends[0], "target": _ends[1]})
BACK = [run("loss", "x2"), move("x1", "ram", "working", drop=True), run("B2", "x1", "y2")]
REFUSED = {
    "writes x0 to ram and disk": (
        TWO,
        [
            move("x0", "working", "ram"),
            move("x0", "working", "disk"),
            run("F1", "x0"),
            move("x1", "working", "ram"),
            run("F2", "x1"),
            *BACK,
            move("x0", "disk", "working", drop=True),
            {"drop": ["x0"], "memory": "working"},
            move("x0", "ram", "working", drop=True),
            run("B1", "x0", "y1"),
        ],
    ),
    "cannot advance from x0 to x2": (
        loop(4, level("ram", 3)),
        [
            move("x0", "working", "ram"),
            run("F1", "x0"),
            move("x1", "working", "ram"),
            run("F2", "x1"),
            run("F3", "x2"),
            {"run": "loss", "drop": ["x3"]},
            move("x1", "ram", "working", drop=True),
            {"drop": ["x1"], "memory": "working"},
            move("x0", "ram", "working"),
            run("F1", "x0"),
            run("F2", "x1"),
            run("B3", "x2", "y3"),
            move("x0", "ram", "working"),
            run("F1", "x0"),
            run("B2", "x1", "y2"),
            move("x0", "ram", "working", drop=True),
            run("B1", "x0", "y1"),
        ],
    ),
    "stays in the working memory": (
        loop(2) | WIDE,
        [run("F1"), run("loss", "x1"), run("B1", "x0", "y1")],
    ),
    "moves whole states and tapes": (
        loop(2) | {"adjoint_size": 1} | WIDE,
        [
            run("F1", "x0"),
            run("loss", "x1"),
            move("y1", "working", "ram", drop=True),
            move("y1", "ram", "working", drop=True),
        ],
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_action_says(text):
    document, steps = REFUSED[text]
    if text.startswith("moves"):  # x0 is needed, too
        steps = [move("x0", "working", "ram"), *steps, move("x0", "ram", "working", drop=True), run("B1", "x0", "y1")]
    with pytest.raises(OptionError, match=text):
        actions_for_checkpoint_schedules(by_hand(document, steps))


def test_tidying_removes_useless_events():
    events = [Write(0, "a"), Write(1, "a"), Free(1, "a"), Read(0, "a"), Read(0, "a"), Free(0, "a")]
    assert tidy(events) == [Write(0, "a"), Read(0, "a"), Read(0, "a", last=True)]
    assert tidy([Read(0, "b")], {"b": 0}) == [Write(0, "b"), Read(0, "b", last=True)]
    assert tidy([], {"b": 0}) == []


@pytest.mark.skipif(HAS_PACKAGE, reason="checkpoint_schedules is installed")
def test_the_package_is_asked_for():
    with pytest.raises(remat.MissingExtraError, match=r"pip install 'remat\[adjoint\]'"):
        to_checkpoint_schedules(solved("revolve"))
