"""The verdict, the order of the tables and the words of a comparison."""

import pytest

import remat
from remat.comparing.cells import Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.report.page import page
from remat.comparing.report.tables import ratio_heading, to_markdown
from remat.comparing.report.terminal import comparison_table
from remat.comparing.report.verdict import CELL, COMMON, OWN, TIME, about_algorithms, verdict
from remat.plugin.registry import find
from tests.comparing.report.page.test_build import cell


def comparison_of(*makespans, names=("auto", "rotor", "periodic")):
    cells = []
    for budget, row in enumerate(makespans, 1):
        for name, makespan in zip(names, row, strict=True):
            outcome = Outcome.UNKNOWN if makespan is None else Outcome.FEASIBLE
            cells.append(cell("a/x", name, budget, makespan, outcome=outcome))
    return Comparison(tuple(cells))


RANKED = comparison_of((10, 20, None), (10, 11, 15), (10, 11, 12))


def test_the_verdict_names_the_best_and_the_distance_of_the_others():
    told = verdict(RANKED)
    assert told.startswith(
        "auto is the fastest on the 2 instances and budgets that all solved: rotor needs 10.0 % more "
    )
    assert "periodic needs 34.2 % more time. Planning took in all: auto " in told  # sqrt(1.5 * 1.2) = 1.342
    assert told.count(". ") == 1


def test_algorithms_without_a_schedule_are_named():
    told = verdict(comparison_of((10, 20, None), (10, 11, None)))
    assert told.startswith(
        "auto is the fastest on the 2 instances and budgets that both solved: rotor needs 48.3 % more time. "
        "periodic solved no cell. Planning"
    )
    text = page(comparison_of((10, 20, None), (10, 11, None)))
    assert "on the 2 cells that both algorithms with a schedule solved." in text


def test_small_differences_are_not_zero():
    assert "rotor needs under 0.1 % more time, periodic" in verdict(comparison_of((10_000, 10_005, 12_000)))
    assert "rotor needs 0.1 % more time, periodic" in verdict(comparison_of((10_000, 10_012, 12_000)))


def test_equals_are_named_together():
    assert verdict(comparison_of((10, 10, 12))).startswith(
        "auto and rotor are equally fast on the one instance and budget that all solved: periodic needs 20.0 % more"
    )
    assert verdict(comparison_of((10, 10, 10))).startswith("auto, periodic and rotor are equally fast")


def test_without_a_common_cell_the_most_solved_wins():
    told = verdict(comparison_of((10, 20, None), (None, 11, 15), (10, 12, None)))
    assert told.startswith(
        "No instance was solved by all 3 algorithms at the same budget; rotor solved most cells, 3 of 3."
    )
    assert verdict(comparison_of((None, None, None))) == "No cell was solved."
    alone = comparison_of((10,), (None,), names=("auto",))
    assert verdict(alone).startswith("auto solved 1 of 2 cells, 0 proved optimal.")


def test_the_verdict_and_the_words_are_everywhere():
    for text in (comparison_table(RANKED), to_markdown(RANKED), page(RANKED).replace("&#x27;", "'")):
        plain = " ".join(text.split())
        for line in (verdict(RANKED), CELL, COMMON, OWN.format(ratio_heading(RANKED)), TIME):
            assert line in plain
        assert find("rotor", "chain").summary in plain
    for text in (comparison_table(RANKED), to_markdown(RANKED), page(RANKED)):
        assert "planning time, sum" in text


def test_algorithms_that_nobody_knows_are_left_out():
    assert list(about_algorithms(comparison_of((10,), names=("somebody",)))) == []
    assert [name for name, _ in about_algorithms(RANKED)] == ["auto", "rotor", "periodic"]


@pytest.mark.parametrize("by_family", [False, True])
def test_both_tables_have_one_order(by_family):
    # Of all cells, rotor has the smaller mean; on the common ones, periodic has.
    found = comparison_of((None, 10, None), (10, 30, 20), (10, 30, 20))
    ranked = [rank.algorithm for rank in found.ranking("a" if by_family else None).ranks]
    assert ranked == ["auto", "periodic", "rotor"]
    assert [standing.algorithm for standing in found.standings(by_family=by_family)] == ranked


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        ("revolve", remat.chain(forward_time=[1, 1], backward_time=1, output_size=1), "did you mean 'revolve-chain'?"),
        ("revolve-chain", remat.adjoint(4), "did you mean 'revolve', 'h-revolve', "),
        (
            "liu",
            remat.chain(forward_time=[1, 1], backward_time=1, output_size=1),
            "use one of dag-exact, offload-exact, rotor, ",
        ),
    ],
)
def test_near_names_for_the_kind_are_offered_first(name, kind, hint):
    with pytest.raises(remat.OptionError, match="solves") as refused:
        remat.solve(kind, algorithm=name)
    assert hint in str(refused.value)
