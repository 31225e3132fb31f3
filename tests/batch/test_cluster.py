"""The same jobs on a dask cluster: the same cells, the same journal, the same limits."""

import json

import pytest

import remat
from remat.batch import cluster
from tests.cli.helpers import CHAIN

distributed = pytest.importorskip("distributed")
# Its own shutdown leaves sockets and loops to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def address(misbehaving):
    """A scheduler with two workers on this computer."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**settings) as local:
        yield local.scheduler_address.removeprefix("tcp://")


def stable(comparison):
    timed = ("seconds", "solve_seconds")
    return [{k: v for k, v in record.items() if k not in timed} for record in comparison.to_records()]


def test_results_are_those_of_the_local_pool(folder, address, tmp_path):
    given = {"algorithms": ("rotor", "liu", "test-crash", "test-die"), "budget_fractions": (0.8, 1.0)}
    there = remat.compare(folder, **given, output=tmp_path / "there", executor=f"dask://{address}")
    here = remat.compare(folder, **given, output=tmp_path / "here", jobs=2)
    assert stable(there) == stable(here)
    journals = []
    for name in ("there", "here"):
        lines = (tmp_path / name / "journal.jsonl").read_text().splitlines()
        journals.append({json.loads(line)["key"] for line in lines[1:]})
    assert journals[0] == journals[1]
    # And what one has done, the other need not do.
    tallies = []
    remat.compare(folder, **given, output=tmp_path / "there", jobs=1, progress=tallies.append)
    assert tallies[-1].total == 0


def test_limits_hold_on_the_cluster(address):
    found = remat.compare(CHAIN, algorithms="test-hang", time_limit=0.2, executor=f"dask://{address}")
    assert [str(cell.answer.outcome) for cell in found] == ["time limit"]


def test_nobody_there(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with pytest.raises(remat.OptionError, match=r"no dask scheduler answers at .127\.0\.0\.1:9."):
        remat.compare(CHAIN, executor="dask://127.0.0.1:9")
