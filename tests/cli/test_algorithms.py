from __future__ import annotations

import subprocess
import sys
from typing import Any, Literal

import pytest
from pydantic import Field

from remat.plugin import registry
from remat.plugin.options import Options
from remat.plugin.proposal import Proposal
from remat.plugin.registry import KINDS
from remat_algorithms.dag.keep_all import solve as keep_all
from tests.cli.helpers import Run, Zoo


class Everything(Options):
    slots: int = Field(500, ge=1, lt=10**6, description="memory slots of the table")
    mode: Literal["fast", "exact"] = Field("fast", description="how")
    limit: float | None = Field(None, description="seconds")
    only: Literal["one"] = "one"
    path: tuple[int, ...] = (1, 2)
    needed: bool = Field(description="no default")


def test_the_list_is_grouped_by_family(run: Run) -> None:
    outcome = run("algorithms")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 100
    found: dict[str, str] = {}
    family = ""
    for line in lines:
        if line and not line.startswith(" "):
            family = line.lower()
        elif line.startswith("  ") and line[2] != " ":
            found[line.split()[0]] = family
    assert found == {algorithm.name: algorithm.family for algorithm in registry.algorithms()}
    assert found["rotor"] == "chain"


def test_one_family_is_listed(run: Run) -> None:
    first, *lines = run("algorithms", "--family", "tree").out.splitlines()
    assert first == "TREE"
    assert {line.split()[0] for line in lines if line[2] != " "} == {
        algorithm.name for algorithm in registry.algorithms() if algorithm.family == "tree"
    }
    assert {one["family"] for one in run("algorithms", "--family", "chain", "--format", "json").document} == {"chain"}
    assert run("algorithms", "--family", "plug-ins").out == "no algorithms of the family plug-ins are installed\n"


def test_families_are_named(run: Run) -> None:
    families = {algorithm.family for algorithm in registry.algorithms()}
    told = run("algorithms", "--help").out
    assert not [family for family in families if family not in told]
    run("algorithms", "--family", "chains").assert_refused("--family", "did you mean 'chain'?")
    run("algorithms", "--family", "zzz").assert_refused("--family", *families)
    run("algorithms", "rotor", "--family", "chain").assert_refused("--family", "one algorithm")


def test_verbose_lists_complexity_and_reference(run: Run) -> None:
    header, *lines = run("algorithms", "-v").out.splitlines()
    assert header.split() == ["NAME", "KINDS", "GUARANTEE", "COMPLEXITY", "REFERENCE", "AVAILABLE"]
    assert [line.split()[0] for line in lines] == sorted(algorithm.name for algorithm in registry.algorithms())


NO_SOLVER = """
import sys
from remat.cli.main import main
assert main(["algorithms"]) == 0
from remat.plugin.registry import algorithms
solvers = {algorithm.solver.partition(":")[0] for algorithm in algorithms()}
heavy = {"numpy", "numba", "pydantic", "ortools", "pulp", "networkx"}
sys.stderr.write(" ".join((solvers | heavy) & set(sys.modules)))
"""


def test_the_list_imports_no_solver() -> None:
    answer = subprocess.run([sys.executable, "-c", NO_SOLVER], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_list_can_be_limited_to_a_kind(run: Run) -> None:
    names = {entry["name"] for entry in run("algorithms", "--kind", "tree", "--format", "json").document}
    assert names == {algorithm.name for algorithm in registry.algorithms("tree")}
    run("algorithms", "--kind", "trees").assert_refused("--kind", "trees")


def test_an_empty_registry_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", dict)
    assert run("algorithms").out == "no algorithms are installed\n"


def test_one_algorithm_is_explained(run: Run, zoo: Zoo) -> None:
    zoo(
        "best",
        keep_all,
        Everything,
        within="a class",
        reference="after Somebody 2020",
        deviates="one memory only",
        several_memories=True,
        anytime=True,
        kinds=("chain", "dag"),
    )
    outcome = run("algorithms", "best")
    assert "chain, dag" in outcome.out
    assert "guarantee   heuristic: proves at most that no schedule exists among a class" in outcome.out
    assert "reference   after Somebody 2020\ndeviates    one memory only\n" in outcome.out
    for part in (
        "slots (integer >= 1 < 1000000, default 500): memory slots of the table",
        'mode (fast | exact, default "fast"): how',
        "limit (number | none, default null): seconds",
        'only (one, default "one")',
        "needed (boolean, default null): no default",
    ):
        assert part in outcome.out


def test_one_algorithm_is_explained_as_json(run: Run, zoo: Zoo) -> None:
    zoo("best", keep_all, Everything)
    document: dict[str, Any] = run("algorithms", "best", "--format", "json").document
    options = {option["name"]: option for option in document["options"]}
    assert options["slots"]["default"] == 500
    assert options["needed"]["required"] is True
    assert options["path"]["default"] == "(1, 2)"


def test_auto_is_explained_like_an_algorithm(run: Run) -> None:
    """`remat solve`'s default `auto` is explained too, although it is not an algorithm."""
    outcome = run("algorithms", "auto")
    assert (outcome.code, outcome.err) == (0, "")
    shown = " ".join(outcome.out.split())
    assert "docs/explanation/auto.md" in shown
    of_graphs = " ".join(run("algorithms", "auto", "--kind", "dag").out.split())
    assert "anytime dag-auto with reorder=true: same conditions, with an improved order of first runs" in of_graphs
    assert "rotor" not in of_graphs
    asks = run("algorithms", "auto", "--format", "json").document["asks"]
    assert {entry["kind"] for entry in asks} == set(KINDS)
    assert {"early", "cheap", "ending", "anytime"} == {entry["group"] for entry in asks}


def test_hooks_of_an_algorithm_are_shown(run: Run, zoo: Zoo) -> None:
    zoo("plain", keep_all)
    zoo("hooked", keep_all, sweep="module:sweep", stream="module:stream")
    assert "sweep       one solve per budget" in run("algorithms", "plain").out
    shown = run("algorithms", "hooked").out
    assert "sweep       answers many budgets at once" in shown
    assert "stream      yields steps one by one" in shown
    document = run("algorithms", "hooked", "--format", "json").document
    assert (document["sweep"], document["stream"]) == (True, True)


def test_an_algorithm_without_options_has_none_listed(run: Run) -> None:
    assert "options     none" in run("algorithms", "keep-all").out


def test_missing_requirements_are_shown(run: Run, zoo: Zoo) -> None:
    zoo("lost", keep_all, Everything, requires=("no_such_module",))
    assert "needs no_such_module" in run("algorithms").out
    outcome = run("algorithms", "lost")
    assert "needs no_such_module" in outcome.out
    assert "unknown until it is available" in outcome.out


def test_an_unknown_algorithm_gets_a_suggestion(run: Run, zoo: Zoo) -> None:
    zoo("for-trees", keep_all, kinds=("tree",))
    run("algorithms", "keepall").assert_refused("'keepall'", "did you mean 'keep-all'?")
    run("algorithms", "zzz").assert_refused("known are")
    run("algorithms", "for-trees", "--kind", "dag").assert_refused("--kind", "solves tree, not dag")


def test_plug_ins_have_one_heading_at_the_end(run: Run, zoo: Zoo) -> None:
    names = ("zz-first", "aa-second")
    for name in names:
        zoo(name, lambda problem, options, context: Proposal())
    lines = run("algorithms").out.splitlines()
    headings = [line for line in lines if line.isupper()]
    assert headings[-1] == "PLUG-INS"
    assert headings.count("PLUG-INS") == 1
    after = lines[lines.index("PLUG-INS") :]
    assert all(any(line.split()[0] == name for line in after if line.split()) for name in names)
