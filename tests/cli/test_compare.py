"""Test `remat compare`: tables on standard output, files in a folder, one-line errors."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Run


def test_a_table_and_files(run: Run, tiny: str, tmp_path: Any) -> None:
    out = tmp_path / "results"
    outcome = run("compare", tiny, "-a", "rotor,periodic", "--budget-fraction", "80%,1.0", "-o", out, "-j", 1)
    assert outcome.code == 0
    assert "4 cells to solve; at most" in outcome.err
    lines = outcome.out.splitlines()
    assert re.match(
        r"rotor is the fastest on the .* that all solved: periodic needs .* % more time\. Planning", lines[0]
    )
    assert lines[2].startswith("ranking (mean makespan over the best on the ")
    assert any(line.split()[:2] == ["algorithm", "cells"] for line in lines)
    assert next(line for line in lines if line.startswith("tiny")).split()[1] == "80%"
    names = {"journal.jsonl", "cells.csv", "summary.md", "comparison.json", "report.html", "schedules"}
    assert {path.name for path in out.iterdir()} == names
    document = json.loads((out / "comparison.json").read_text())
    assert len(document["cells"]) == 4
    assert {s["algorithm"] for s in document["standings"]} == {"rotor", "periodic"}
    assert (out / "summary.md").read_text().startswith("# Comparison")
    report = (out / "report.html").read_text()
    assert report.count('<figure class="schedule">') == 2
    again = run("compare", tiny, "-a", "rotor,periodic", "--budget-fraction", "80%,1.0", "-o", out)
    assert "0 cells to solve, 4 already in the journal" in again.err
    assert again.out == outcome.out
    before, after = (text.partition('<h2 id="made">')[0] for text in (report, (out / "report.html").read_text()))
    assert before == after  # pictures come from the journal


def test_every_format_has_the_cells(run: Run, tiny: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run("compare", tiny, "-j", 1, "--format", "csv").out)))
    assert [(row["algorithm"], row["outcome"], row["makespan"]) for row in rows] == [("auto", "optimal", "10")]
    assert json.loads(run("compare", tiny, "-j", 1, "--format", "json").out)["cells"][0]["makespan"] == 10
    assert "| auto | 1 | 1 | 1 |" in run("compare", tiny, "-j", 1, "--format", "markdown").out
    quiet = run("compare", tiny, "-j", 1, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert "1/1 auto on tiny: optimal" in run("compare", tiny, "-j", 1, "-v").err


def test_options_and_machine_reach_the_solves(run: Run, tiny: str, save: Any) -> None:
    machine = save({"memories": [{"name": "memory", "capacity": 20}]}, "machine.json")
    outcome = run(
        "compare", tiny, "-a", "rotor", "-O", "rotor.gap=3%", "--machine", machine, "-j", 1, "--format", "json"
    )
    (cell,) = outcome.document["cells"]
    assert cell["options"] == "gap=0.03"
    assert cell["peaks"].startswith("memory=")
    assert cell["peak_memory"] <= 20


def test_one_algorithm_has_a_column_for_each_set_of_options(run: Run, tiny: str, tmp_path: Any) -> None:
    asked = ("compare", tiny, "-a", "rotor", "-a", "rough=rotor", "-O", "rough.gap=30%", "-b", 22, "-j", 1)
    outcome = run(*asked, "-o", tmp_path)
    (head,) = (line for line in outcome.out.splitlines() if line.startswith("instance "))
    assert head.split() == ["instance", "budget", "best", "rotor", "rough"]
    assert "\nrough: rotor with gap=0.3: " in outcome.out
    rows = [*csv.DictReader(io.StringIO((tmp_path / "cells.csv").read_text()))]
    told = [(row["algorithm"], row["registered"], row["options"]) for row in rows]
    assert told == [("rotor", "rotor", ""), ("rough", "rotor", "gap=0.3")]
    again = run(*asked, "-o", tmp_path, "--baseline", "rough")
    assert "0 cells to solve, 2 already in the journal" in again.err
    assert "ratio to rough" in again.out


def test_many_algorithms_show_who_leads(run: Run, tiny: str) -> None:
    out = run("compare", tiny, "-a", "all", "-j", 1).out
    assert "the best of each instance and budget" in out


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names of any bytes")
def test_names_that_are_no_text_nor_markup(run: Run, tiny: str, tmp_path: Any) -> None:
    folder = tmp_path / "in"
    (folder / "[").mkdir(parents=True)
    for name in (b"caf\xe9", b"[red]x[", b"line\nbreak", b"\x1b[31mred", b"[/b]"):
        with open(os.fsencode(folder) + b"/" + name + b".json", "wb") as file:
            file.write(Path(tiny).read_bytes())
    outcome = run("compare", folder, "-a", "rotor", "-o", tmp_path / "out", "-j", 1, "-v")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out + outcome.err
    labels = [cell["instance"] for cell in json.loads((tmp_path / "out" / "comparison.json").read_text())["cells"]]
    assert labels == ["\x1b[31mred", "[/b]", "[red]x[", "caf\udce9", "line\nbreak"]
    assert "caf\\udce9" in outcome.out
    for path in filter(Path.is_file, (tmp_path / "out").rglob("*")):
        path.read_text("utf-8")


def test_the_table_is_shown_though_the_files_cannot_be_written(run: Run, tiny: str, tmp_path: Any) -> None:
    (tmp_path / "out" / "cells.csv").mkdir(parents=True)
    outcome = run("compare", tiny, "-a", "rotor", "-o", tmp_path / "out", "-j", 1)
    assert outcome.code == 2
    assert "cells.csv" in outcome.err
    assert outcome.out.startswith("rotor solved 1 of 1 cell, 1 proved optimal. Planning took in all: rotor ")
    assert "\nalgorithm " in outcome.out


def test_what_is_no_instance_does_not_end_the_run(run: Run, tiny: str, tmp_path: Any) -> None:
    (tmp_path / "bad.json").write_text("{")
    outcome = run("compare", tmp_path, "-j", 1)
    assert outcome.code == 0
    assert "bad unreadable: " in outcome.out
    assert "malformed JSON" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-a", "rotr"), ("--algorithms", "did you mean 'rotor'")),
        (("-a", ","), ("--algorithms", "at least one")),
        (("--budget", "3gb"), ("--budget: '3gb' has an unknown unit 'gb'",)),
        (("--budget", "8GB,x%"), ("--budget: 'x%' is not a share",)),
        (("--budget-fraction", "half"), ("--budget-fraction", "'half'")),
        (("--budget-fraction", "0"), ("--budget-fraction",)),
        (("--seeds", "1,x"), ("--seeds", "'x'")),
        (("-O", "slots=3"), ("--option", "NAME.KEY=VALUE")),
        (("-O", "rotor.slots"), ("--option", "KEY=VALUE")),
        (("--time-limit", "soon"), ("--time-limit", "'soon'")),
        (("--gap", "little"), ("--gap", "'little'")),
        (("--patience", "long"), ("--patience", "'long'")),
        (("--memory-limit", "-1"), ("--memory-limit",)),
        (("--machine", "none.json"), ("--machine", "none.json")),
        (("--executor", "dask:"), ("--executor", "dask://HOST:PORT")),
        (("--rerun", "some"), ("--rerun",)),
        (("--jobs", "0"), ("--jobs",)),
    ],
)
def test_bad_arguments_are_refused(run: Run, tiny: str, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    run("compare", tiny, *arguments).assert_refused(*parts)


def test_bad_paths_are_refused(run: Run, tmp_path: Any, tiny: str) -> None:
    run("compare").assert_refused("PATH")
    run("compare", tmp_path / "none").assert_refused("no such file")
    Path(tmp_path / "folder").mkdir()
    run("compare", tmp_path / "folder").assert_refused("holds no .json")
    run("compare", tiny, "-o", tiny).assert_refused("cannot make folder")
    (tmp_path / "journal.jsonl").write_text("something else\n")
    run("compare", tiny, "-o", tmp_path).assert_refused("is not a journal of remat")
