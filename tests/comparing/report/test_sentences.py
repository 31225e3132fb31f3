"""A comparison in sentences, and how it was made."""

import json
import re

import remat
from remat.cli.main import main
from remat.comparing.cells import Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.report.page import page
from remat.comparing.report.sentences import circumstances, grouped, sentences
from remat.comparing.report.tables import to_markdown
from remat.comparing.report.terminal import comparison_table
from remat.comparing.report.verdict import about_algorithms
from remat.units import parse_size
from tests.comparing.report.page.test_build import cell, example


def told(*cells):
    return dict(sentences(Comparison(cells)))


def test_sentences_name_the_fastest_algorithm():
    found = told(
        cell("a/x", "rotor", 5, 12),
        cell("a/x", "periodic", 5, 15),
        cell("a/y", "rotor", 6, 10, outcome=Outcome.OPTIMAL),
        cell("a/y", "periodic", 6, 10),
        cell("a/z", "rotor", 7, None, outcome=Outcome.INFEASIBLE),
        cell("a/w", "rotor", 8, None, outcome=Outcome.UNKNOWN),
        cell("a/v", "rotor", 9, 20),
        cell("a/v", "periodic", 9, None, outcome=Outcome.REFUSED),
    )
    assert found == {
        "a/x within 5": "rotor is the quickest, 12, 20 % above the lower bound; 2 of 2 found a schedule.",
        "a/y within 6": "rotor and periodic are the quickest, 10, proved optimal; 2 of 2 found a schedule.",
        "a/z within 7": "proved that no schedule exists.",
        "a/w within 8": "1 algorithm found no schedule, without a proof that none exists.",
        "a/v within 9": "rotor is the quickest, 20, 100 % above the lower bound; 1 of 2 found a schedule.",
    }


def test_statements_are_made_once_for_all_instances_and_budgets():
    comparison = Comparison(
        (
            cell("a/x", "rotor", 5, 12),
            cell("a/x", "periodic", 5, 15),
            cell("a/x", "rotor", 6, 11),
            cell("a/x", "periodic", 6, 12),
            cell("a/y", "rotor", 6, 10, outcome=Outcome.OPTIMAL),
            cell("a/y", "periodic", 6, 14),
            cell("a/z", "rotor", 7, None, outcome=Outcome.INFEASIBLE),
        )
    )
    assert dict(grouped(comparison)) == {
        "rotor is the quickest; 2 of 2 found a schedule": (
            "a/x: 5 (12, 20 % above the lower bound), 6 (11, 10 % above the lower bound); a/y: 6 (10, proved optimal)"
        ),
        "proved that no schedule exists": "a/z: 7",
    }


def test_unsolved_instances_name_sufficient_budgets():
    none, unknown = Outcome.INFEASIBLE, Outcome.UNKNOWN
    cells = (
        cell("a/x", "rotor", 5, None, none, least_budget=12),
        cell("a/x", "chen", 5, None, unknown, least_budget=14),
        cell("a/y", "rotor", 6, None, none, least_needed=8),
        cell("a/y", "chen", 6, None, unknown, least_needed=7),
        cell("a/z", "rotor", 7, None, unknown, least_budget=2_730_643_456),
        cell("a/v", "rotor", 9, 20),
        cell("a/v", "chen", 9, None, none, least_budget=10),
    )
    comparison = Comparison(cells)
    assert dict(sentences(comparison)) == {
        "a/x within 5": "proved that no schedule exists; 12 is enough.",
        "a/y within 6": "proved that no schedule exists; at least 8 is needed.",
        "a/z within 7": "1 algorithm found no schedule, without a proof that none exists; 2730643456 is enough.",
        "a/v within 9": "rotor is the quickest, 20, 100 % above the lower bound; 1 of 2 found a schedule.",
    }
    for text in (comparison_table(comparison), to_markdown(comparison), page(comparison)):
        assert "12 is enough" in text
        assert "at least 8 is needed" in text
        assert "14 is enough" not in text
        assert "10 is enough" not in text


def test_budgets_that_are_named_can_be_given():
    tight = remat.compare(remat.example("resnet50"), algorithms="rotor", budgets=["500MB"], jobs=1)
    (told,) = dict(sentences(tight)).values()
    (named,) = re.findall(r"^proved that no schedule exists; (.* MB) \(.* MiB\) is enough\.$", told)
    assert remat.solve(remat.example("resnet50"), algorithm="rotor", budget=named).makespan
    (one,) = tight
    assert one.to_record()["least_budget"] <= parse_size(named) < one.to_record()["least_budget"] * 1.001


def test_the_page_tells_them_and_how_it_was_made():
    comparison = example()
    made = circumstances(["compare", "a b.json"], [("time-limit", "5s"), ("gap", None)])
    html = page(comparison, made)
    assert html.count("<dt>") == len(list(grouped(comparison))) + len(list(about_algorithms(comparison))) + len(made)
    assert "remat compare &#x27;a b.json&#x27;" in html
    assert "<dd>time-limit 5s</dd>" in html
    assert "<script>alert" not in html
    assert 'title="A verified schedule, with a proof' in html
    assert page(comparison) == page(comparison)
    assert "How this was made" not in page(comparison)


def test_the_command_line_says_it(tmp_path, capsys):
    assert main(["compare", "example:lecture_l5", "-o", str(tmp_path / "out"), "--jobs", "1"]) == 0
    html = (tmp_path / "out" / "report.html").read_text()
    assert "remat compare example:lecture_l5 -o" in html
    assert "auto is the quickest; 1 of 1 found a schedule</dt><dd>adjoint/lecture_l5: without a budget (" in html
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["schema"] == "remat.comparison/1"


def test_refusals_have_their_reasons():
    refused = [cell("a/x", "liu", size, None, outcome=Outcome.REFUSED, detail="knows no chains") for size in (5, 6)]
    text = comparison_table(Comparison((cell("a/x", "rotor", 5, 12), *refused)))
    assert "refused:\n  liu: knows no chains (2 cells)" in text
    assert "refused:" not in comparison_table(Comparison((cell("a/x", "rotor", 5, 12),)))
