"""Words of answers: each is explained, and answers name those that they use."""

import re
from pathlib import Path

import pytest

import remat
from remat.cli.main import main
from remat.comparing.report.page.build import EXPLAINED, WORDS
from remat.instance import load
from remat.plugin.registry import algorithms
from remat.report.glossary import all_terms, drawn_terms, find_term, page, terms_in
from remat.report.text import curve_tables
from remat.report.text import summary as summary_module
from remat.report.text.summary import lines_of, summary
from remat.report.views.kinds import Kind, kind_label
from remat.solving.problem_setup import make_problem
from tests import places

WANTED = (
    *("persistent", "floating", "frontier-advancing", "reference order", "scope"),
    *("strategy", "anytime", "gap", "claim"),
)
PRINTED = ("idle", "speed-up", "bubble", "period", "makespan", "recompute", "recompute time", "recomputation", "gap")
"""Labels of answers on pipelines."""


def test_the_page_is_what_the_command_prints(capsys):
    assert main(["explain", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == page().rstrip("\n")
    assert (places.DOCS / "reference" / "glossary.md").read_text().rstrip("\n") == page().rstrip("\n")


@pytest.mark.parametrize("name", WANTED)
def test_words_that_need_a_picture_have_one(name):
    assert find_term(name).picture


def test_terms_are_told_apart_and_short():
    names = [name for term in all_terms() for name in (term.name, *term.also)]
    assert len(names) == len(set(names))
    for term in all_terms():
        assert len(re.split(r"[.:] (?=[A-Z`])", term.meaning)) == 1, term.name
        assert not term.page or (places.DOCS / term.page).exists()
        assert all(len(line) <= 72 for line in term.picture.split("\n"))


def test_every_class_of_the_registry_is_explained():
    for algorithm in algorithms():
        if algorithm.within and algorithm.within != "all schedules":
            assert terms_in(algorithm.within), algorithm.within


def test_words_of_legends_and_of_headings_are_explained():
    shown = [kind_label(kind, training=training) for kind in Kind for training in (False, True)]
    for word in (*shown, *(kind.term for kind in Kind), *(WORDS.get(title, title) for title in EXPLAINED)):
        assert find_term(word), word


@pytest.mark.parametrize("name", PRINTED)
def test_labels_of_pipelines_are_explained(name):
    assert find_term(name)


SOURCES = ("summary", "class_bounds", "stopped", "plan_view", "verdict", "facts")
SOURCES += ("shortfall_lines", "schedule_view", "run_times")
LABEL = re.compile(r'(?:yield \(?\s*|_labelled\()"([a-z][a-z -]*)"(?:,| if)')


def test_every_label_of_a_summary_is_explained():
    """The labels are read from the source, so that no answer needs to be found for each of them."""
    folder = Path(summary_module.__file__).parent
    labels = {label for name in SOURCES for label in LABEL.findall((folder / f"{name}.py").read_text())}
    assert {"limited by", "recompute time", "repeated gathers", "ranks"} <= labels
    assert {"load", "stopped", "other bounds", "verdict", "memory bound", "peak memory", "to be placed"} <= labels
    assert [label for label in sorted(labels - {"see also"}) if find_term(label) is None] == []


def test_columns_and_marks_of_sweeps_are_explained():
    titles = {*curve_tables.HEADER, *curve_tables.PIPELINE_HEADER, curve_tables.BEATEN, "knee"} - {""}
    assert [title for title in sorted(titles) if find_term(title) is None] == []


def test_printed_labels_are_explained():
    chain = remat.example("lecture_l5")
    for result in (remat.solve(chain, budget=6), remat.solve(chain, algorithm="revolve", budget=4)):
        shown = {label for label, _ in lines_of(result)} - {"", "see also"}
        assert [label for label in shown if find_term(label) is None] == []


def test_only_terms_with_a_picture_are_referred_to():
    assert drawn_terms("whole-value offloading in the reference order, at most 2 copies of a value over a link")
    assert drawn_terms("sequential schedules in one memory") == ()
    assert terms_in("sequential schedules in one memory")
    for algorithm in algorithms():
        assert all(find_term(name).picture for name in drawn_terms(algorithm.within))


def test_answers_refer_to_their_terms(capsys):
    chain = remat.example("lecture_l5")
    answer = remat.solve(chain, algorithm="revolve", budget=4)
    assert summary(answer).splitlines()[-1].split(maxsplit=2) == ["see", "also", "remat explain checkpointing"]
    assert "see also" not in summary(remat.solve(chain, budget=6))
    assert main(["explain", "memory-persistent"]) == 0
    assert capsys.readouterr().out.startswith("persistent: ")


@pytest.mark.parametrize(("asked", "hint"), [("gapp", "did you mean 'gap'"), ("zzzz", "lists the terms")])
def test_unknown_terms_get_a_hint(asked, hint, capsys):
    assert main(["explain", asked]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Fe", "Fe3", "loss", "B17", "W2.3", "x4", "B17 of 16:Bottleneck"])
def test_names_of_tasks_and_values_are_explained(name, capsys):
    assert main(["explain", *name.split()]) == 0
    assert capsys.readouterr().out.startswith("task names: ")


def test_letters_of_tasks_and_values_are_explained():
    term = find_term("task names")
    assert term is not None
    named = set(term.names)
    for example in ("resnet50", "uniform_p4_m8", "siamese_resnet18_b32", "binary_n1000", "bert_large_b32_parameters"):
        graph = make_problem(load(remat.example(example))).graph
        for name in (*graph.tasks, *graph.values):
            assert name.rstrip("0123456789.") in named, name


def test_unknown_terms_lead_to_algorithms(capsys):
    assert main(["explain", "rotor"]) == 2
    assert "`remat algorithms rotor` explains this algorithm" in capsys.readouterr().err
    assert main(["explain", "Fee"]) == 2
