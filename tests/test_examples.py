"""Test the programs in examples/: they run unchanged, and their output follows their arguments."""

import re
import runpy
import sys
from textwrap import dedent

import pytest

from tests import places

EXAMPLES = places.ROOT / "examples"


@pytest.fixture
def run(capsys, monkeypatch):
    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return call


def test_a_planner_cuts_a_model_over_devices(run):
    lines = run("cut_over_devices.py", "--devices", "2")
    found = [
        re.fullmatch(r"device \d: layers (\d+)-(\d+), (\d+) us, (\d+) MB, recomputes \[(.*)\]", line) for line in lines
    ]
    assert [int(one[1]) for one in found] == [0, int(found[0][2]) + 1]
    assert int(found[1][2]) == 23
    assert all(int(one[4]) <= 600 for one in found)
    assert found[0][5]
    more = run("cut_over_devices.py", "--devices", "4", "--memory", "900MB")
    assert max(int(line.split(", ")[1].split()[0]) for line in more) < max(int(one[3]) for one in found)
    with pytest.raises(SystemExit, match="too small"):
        run("cut_over_devices.py", "--devices", "1", "--memory", "200MB")


def test_a_scheduler_orders_a_graph_within_a_limit(run):
    first = run("order_graph.py")
    assert re.fullmatch(r"optimal: 75\.0 s, 1\.\d\d GB of 2GB", first[0])
    with pytest.raises(SystemExit, match=r"infeasible within 1GB; [\d,]+ bytes would do"):
        run("order_graph.py", "--limit", "1GB")


def test_a_typed_program_runs():
    """`make type` checks its types."""
    runpy.run_path(str(places.ROOT / "tests" / "typing" / "user_program.py"), run_name="__main__")


def test_all_examples_are_run_somewhere():
    tested = (places.ROOT / "tests/test_examples.py").read_text() + (
        places.ROOT / "tests/torch/test_examples.py"
    ).read_text()
    assert all(path.name in tested for path in EXAMPLES.glob("*.py"))


def test_the_guide_shows_the_planner():
    """The code block of the page is the program's own `solved`."""
    page = (places.DOCS / "how-to" / "use-in-a-planner.md").read_text()
    program = (EXAMPLES / "cut_over_devices.py").read_text()
    start, end = program.index("    @cache\n    def solved("), program.index("    @cache\n    def best(")
    assert dedent(program[start:end]).strip() in page
