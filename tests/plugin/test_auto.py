"""The table behind `auto`: each of its rows, and that docs/auto.md shows the same ones."""

import re

import pytest

import remat
from remat import OptionError
from remat.plugin import auto, registry
from remat.plugin.auto import TABLE, choose
from remat.solving.single import make_problem
from remat.testing.cases import degenerate, moderate
from tests import places


def adjoint(steps=4, **more):
    return {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps, **more}


OWN_STEPS = [{"forward_time": time} for time in (1, 2, 3, 4)]
DISK = [{"name": "disk"}]
OWN_SIZES = [{"state_size": size} for size in (1, 2, 3, 2)]
ELSEWHERE = {
    "memories": [{"name": "host"}, {"name": "device"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "host", "target": "device", "latency": 1}, {"source": "device", "target": "host"}],
}
OFFLOADING = ELSEWHERE | {"processors": [{"name": "gpu", "memory": "host"}]}
ONE_WAY = OFFLOADING | {"links": OFFLOADING["links"][:1]}
VARIANTS = moderate("chain") | {
    "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 2, "variants": [{"saved_size": 3}, {}]}] * 4
}
LONG = moderate("chain") | {"stages": moderate("chain")["stages"][:1] * 1001}
SLOW = [{"name": "disk", "write_time": 1}]


def chosen(document, budget=None, **more):
    return choose(make_problem(remat.load(document), budget=budget), **more).name


PARAMETERS = moderate("chain") | {
    "schema": "remat.instance/2",
    "stages": [stage | {"parameter_size": 3, "update_time": 1} for stage in moderate("chain")["stages"]],
}

ROWS = [
    ("chain", moderate("chain"), None, "chain-best"),
    ("chain with variants", VARIANTS, None, "rotor"),
    ("long chain", LONG, None, "rotor"),
    ("chain that can offload", moderate("chain") | {"machine": OFFLOADING}, None, "remat-offload-best"),
    ("long chain that can offload", LONG | {"machine": OFFLOADING}, None, "rotor"),
    ("chain with parameters", PARAMETERS, None, "dag-auto"),
    ("chain with parameters that can offload", PARAMETERS | {"machine": OFFLOADING}, None, "weight-offload"),
    ("chain without a way back", moderate("chain") | {"machine": ONE_WAY}, None, "chain-best"),
    ("everything fits", adjoint(), None, "store-all"),
    ("everything just fits", adjoint(), 4, "store-all"),
    ("not everything fits", adjoint(), 3, "adjoint-dp"),
    ("adjoints of another size", adjoint(adjoint_size=2), 4, "adjoint-best"),
    ("everything fits into storage", adjoint(storage=DISK), 3, "store-all"),
    ("little storage", adjoint(storage=DISK), 2, "revolve"),
    ("storage takes time", adjoint(storage=SLOW), None, "h-revolve"),
    ("storage overlaps", adjoint(storage=[SLOW[0] | {"channel": "dma"}]), None, "adjoint-best"),
    ("many steps, storage overlaps", adjoint(5000, storage=[SLOW[0] | {"channel": "dma"}]), None, "revolve"),
    ("tapes", adjoint(tape_size=1), None, "adjoint-best"),
    ("many steps and tapes", adjoint(5000, tape_size=1), None, "revolve"),
    ("own steps, everything fits", adjoint(OWN_STEPS), 4, "store-all"),
    ("own steps, not everything fits", adjoint(OWN_STEPS), 3, "adjoint-dp"),
    ("own steps, little storage", adjoint(OWN_STEPS, storage=DISK), 2, "walther-griewank"),
    ("own steps, storage takes time", adjoint(OWN_STEPS, storage=SLOW), None, "walther-griewank"),
    ("own steps, no room for a state", adjoint(OWN_STEPS, storage=DISK), 0, "adjoint-best"),
    ("own steps, two levels", adjoint(OWN_STEPS, storage=[*SLOW, {"name": "ram", "slots": 1}]), None, "adjoint-best"),
    ("own sizes", adjoint(OWN_SIZES, storage=SLOW), 3, "adjoint-best"),
    ("very many own sizes", adjoint(OWN_SIZES * 2000, storage=SLOW), 3, "adjoint-best"),
    ("computing elsewhere", adjoint(OWN_STEPS, machine=ELSEWHERE), None, "recompute-all"),
    ("tree", moderate("tree"), None, "liu"),
    ("dag, all values fit", moderate("dag"), None, "keep-all"),
    ("dag, not all values fit", moderate("dag"), 40, "dag-auto"),
]


@pytest.mark.parametrize(("document", "budget", "name"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rows(document, budget, name):
    assert chosen(document, budget) == name


def test_every_row_of_the_table_is_tested():
    named = {name for rule in TABLE for name in rule.algorithms[:1]}
    assert named == {name for _, _, _, name in ROWS}


def test_table_names_registered_algorithms():
    for rule in TABLE:
        assert rule.kind in registry.KINDS
        for name in rule.algorithms:
            assert registry.find(name, rule.kind).name == name


def test_every_kind_has_a_last_row_that_always_applies():
    for kind in registry.KINDS:
        rules = [rule for rule in TABLE if rule.kind == kind]
        problem = make_problem(remat.load(moderate(kind)), budget=0)
        assert rules[-1].applies(problem)


def test_documentation_shows_the_table():
    page = (places.DOCS / "auto.md").read_text()
    rows = re.findall(r"^\| *`?(\w+)`? *\|([^|]*)\|([^|]*)\|", page, flags=re.MULTILINE)
    shown = [(kind, when.strip(), tuple(re.findall(r"`([a-z0-9-]+)`", names))) for kind, when, names in rows]
    table = [(rule.kind, rule.when, rule.algorithms) for rule in TABLE]
    many = re.findall(r"^\| a (\w+) \| ([^|]*) \| `([a-z0-9-]+)`", page, flags=re.MULTILINE)
    assert many == [(rule.kind, rule.when, name) for rule in TABLE for name in rule.many]
    assert [row for row in shown if row[0] in registry.KINDS] == table


def test_many_budgets_of_a_chain_are_for_rotor():
    assert chosen(moderate("chain"), 40, many=True) == "rotor"
    assert chosen(VARIANTS, 40, many=True) == "rotor"
    assert chosen(moderate("dag"), 40, many=True) == chosen(moderate("dag"), 40)
    asked = remat.least_budget(moderate("chain"), max_overhead="20%")
    assert asked.algorithm == "rotor"
    assert asked.answer.proved
    curves = [remat.sweep(moderate("chain"), name, points=3).curves[0] for name in ("auto", "rotor")]
    found, expected = ([(point.algorithm, point.budget, point.makespan) for point in curve.points] for curve in curves)
    assert found == expected
    assert {name for name, _, _ in found} == {"rotor"}


def test_no_algorithm_for_chains_beats_auto():
    document = moderate("chain")
    least = remat.solve(document, budget=0).least_budget.size
    whole = remat.solve(document, algorithm="keep-all").peak_memory["memory"]
    for budget in (least, (least + whole) // 2, whole):
        best = remat.solve(document, budget=budget)
        assert best.algorithm == "chain-best"
        for name in ("rotor", "rotor-float", "periodic", "chen-greedy", "revolve-chain"):
            found = remat.solve(document, algorithm=name, budget=budget)
            assert found.makespan is None or found.makespan >= best.makespan


def test_first_available_algorithm_of_a_row(monkeypatch):
    rule = auto.Rule("dag", "any", ("not-there", "keep-all"), lambda problem: True)
    monkeypatch.setattr(auto, "TABLE", (rule,))
    assert chosen(moderate("dag")) == "keep-all"
    with pytest.raises(OptionError, match="no algorithm for kind 'tree' is installed"):
        chosen(moderate("tree"))


@pytest.mark.parametrize("kind", [*registry.KINDS, pytest.param("adjoint", marks=pytest.mark.slow, id="adjoint-whole")])
def test_auto_solves_every_case(kind, request):
    for name, document in degenerate(kind).items():
        chosen = choose(make_problem(remat.load(document))).name
        if chosen == "adjoint-best" and "whole" not in request.node.name:
            # What `auto` chooses, with less work than a minute's.
            result = remat.solve(document, algorithm=chosen, options={"iterations": 5, "moves": 2000, "work": 0.001})
        else:
            result = remat.solve(document)
        assert result.report is None or result.report.ok, name
        assert result.algorithm in {choice for rule in TABLE for choice in rule.algorithms}
