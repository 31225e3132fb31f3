"""Interactive pages of the schedules of a comparison, and the links to them."""

import json
import re

import pytest

import remat
from remat.comparing import run as running
from remat.comparing.report.page import page
from tests.browser import Browser, needs_browser
from tests.cli.helpers import CHAIN


def compared(tmp_path, **given):
    return remat.compare(
        CHAIN, algorithms=("rotor", "liu", "store-all"), budgets=(22,), output=tmp_path, jobs=1, **given
    )


def written(tmp_path):
    folder = tmp_path / running.PAGES
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_each_schedule_has_a_page(tmp_path):
    found = compared(tmp_path, pages=True)
    solved = [cell for cell in found if cell.answer.solved]
    assert written(tmp_path) == sorted(running.page_name(cell.job.key) for cell in solved)
    text = (tmp_path / running.PAGES / running.page_name(solved[0].job.key)).read_text()
    assert solved[0].job.algorithm in text
    assert "memory" in text
    # Cells from the journal need no worker and keep their pages.
    compared(tmp_path, pages=True)
    assert len(written(tmp_path)) == len(solved)


def test_up_to_so_many_cells(tmp_path, monkeypatch):
    compared(tmp_path / "few", pages=None)
    assert written(tmp_path / "few")
    monkeypatch.setattr(running, "MOST_PAGES", 2)
    compared(tmp_path / "many", pages=None)
    assert written(tmp_path / "many") == []
    compared(tmp_path / "none", pages=False)
    assert written(tmp_path / "none") == []


def test_what_cannot_be_written_is_a_note(tmp_path):
    (tmp_path / running.PAGES).write_text("in the way")
    found = compared(tmp_path, pages=True)
    assert any(cell.answer.solved for cell in found)
    assert any("pages of schedules are missing" in note for note in found.notes)


def test_the_report_leads_to_them(run, tmp_path, tiny):
    folder = tmp_path / "results"
    assert run("compare", tiny, "-a", "rotor,liu", "-o", folder, "-q").code == 0
    report = (folder / "report.html").read_text()
    links = re.findall(r'href="(schedules/[0-9a-f]+\.html)"', report)
    assert links
    assert all((folder / link).exists() for link in links)
    assert run("compare", tiny, "-a", "rotor", "-o", tmp_path / "plain", "-q", "--no-pages").code == 0
    plain = (tmp_path / "plain" / "report.html").read_text()
    assert 'href="schedules/' not in plain
    # A report with links names the folder to send with it, at the pictures and at the cells; one without does not.
    assert report.count("the folder schedules next to this file") == 2
    assert "next to this file" not in plain
    again = run("compare", tiny, "-a", "rotor,liu", "-o", folder, "--no-pages")
    assert "0 cells to solve" in again.err
    assert 'href="schedules/' not in (folder / "report.html").read_text()


def test_a_single_file_has_no_pages(run, tmp_path, tiny):
    folder = tmp_path / "results"
    assert "--single-file" in run("compare", "--help").out
    assert run("compare", tiny, "-a", "rotor", "-o", folder, "-q", "--single-file").code == 0
    assert not (folder / "schedules").exists()
    assert "look into it" not in (folder / "report.html").read_text()
    refused = run("compare", tiny, "-a", "rotor", "-o", folder, "--single-file", "--pages")
    assert refused.code == 2
    assert "leave out --pages or --single-file" in refused.err


def test_names_stand_in_the_order_of_their_numbers(tmp_path):
    from remat.comparing.plan import find_sources

    for name in ("r10", "r2", "r1", "s", "r2b"):
        document = CHAIN | {"name": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert [source.label.rpartition("/")[2] for source in find_sources([tmp_path])] == ["r1", "r2", "r2b", "r10", "s"]


def test_pages_are_no_part_of_a_report_of_their_own(tmp_path):
    assert 'href="schedules/' not in page(compared(tmp_path, pages=True))


@needs_browser
def test_links_lead_to_pages_in_a_browser(run, tmp_path, tiny):
    folder = tmp_path / "results"
    assert run("compare", tiny, "-a", "rotor,store-all", "-o", folder, "-q").code == 0
    with Browser() as browser:
        browser.open(folder / "report.html")
        browser.run("document.querySelector('a[href^=\"schedules/\"]').click()")
        browser.wait("document.documentElement.dataset.drawn")
        assert browser.run("schedule.memories[0].peak") > 0
        assert browser.errors == []


@pytest.fixture
def seeds(tmp_path):
    return remat.compare(
        CHAIN, algorithms=("dtr", "rotor"), budgets=(22, 40), seeds=(0, 1), output=tmp_path, jobs=1, baseline="rotor"
    )


def test_a_baseline_and_a_floor(seeds, run, tiny, tmp_path):
    by_name = {standing.algorithm: standing for standing in seeds.standings()}
    assert by_name["rotor"].ratio_to_best == 1.0
    assert by_name["rotor"].spread == 0.0
    for cell in seeds:
        if cell.answer.solved:
            reference = seeds.reference[cell.job.instance, cell.job.budget]
            assert seeds.ratio(cell) == pytest.approx(cell.answer.makespan / reference)
            assert cell.answer.floor <= cell.answer.lower_bound <= cell.answer.makespan
    # The floor is that of the instance and the budget, whoever runs.
    floors = {(cell.job.budget, cell.answer.floor) for cell in seeds}
    assert len(floors) == 2
    alone = remat.compare(CHAIN, algorithms="store-all", budgets=(22, 40), jobs=1)
    assert {(cell.job.budget, cell.answer.floor) for cell in alone} == floors
    out = run("compare", tiny, "-a", "dtr,rotor", "-b", "22,40", "--baseline", "rotor").out
    assert "ratio to rotor" in out
    assert "Makespan over rotor's" in out
    run("compare", tiny, "-a", "dtr", "--baseline", "rotor").assert_refused("--baseline", "rotor")
