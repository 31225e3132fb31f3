"""The same jobs on a dask cluster: the same cells, the same journal, the same limits."""

import json
import os
import signal

import pytest

import remat
from remat.comparing import cluster
from tests.cli.helpers import CHAIN
from tests.comparing.conftest import installed

distributed = pytest.importorskip("distributed")
# Its own shutdown leaves sockets and loops to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


# As the tests of the local pool have it: how long an interrupted solver is waited for.
SOON = "from remat.comparing import supervision; supervision.GRACE = 0.3"
SETTINGS = {"preload": [SOON], "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}


def address_of(local):
    return local.scheduler_address.removeprefix("tcp://")


def stable(comparison):
    timed = ("seconds", "solve_seconds")
    return [{k: v for k, v in record.items() if k not in timed} for record in comparison.to_records()]


@pytest.fixture(scope="class")
def local(tmp_path_factory):
    """A scheduler with two workers on this computer."""
    with (
        installed(tmp_path_factory.mktemp("cluster") / "site"),
        distributed.LocalCluster(n_workers=2, **SETTINGS) as local,
    ):
        yield local


@pytest.fixture
def address(local):
    return address_of(local)


class TestOneCluster:
    """All on the same one, which takes seconds to start: those that break something come last."""

    def test_results_are_those_of_the_local_pool(self, folder, address, tmp_path):
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

    def test_clusters_and_clients_are_executors(self, folder, local):
        given = {"algorithms": "liu", "pages": None}
        here = stable(remat.compare(folder, **given, jobs=1))
        assert stable(remat.compare(folder, **given, executor=local)) == here
        with distributed.Client(local, set_as_default=False) as client:
            assert stable(remat.compare(folder, **given, executor=client)) == here
            assert client.status == "running"  # it is not ours to close
        assert local.status.name == "running"

    def test_limits_hold_on_the_cluster(self, address):
        found = remat.compare(CHAIN, algorithms="test-hang", time_limit=0.2, executor=f"dask://{address}")
        assert [str(cell.answer.outcome) for cell in found] == ["time limit"]

    def test_a_machine_that_is_lost_takes_no_cell_along(self, folder, local):
        """Nor do runs disturb each other that send the same documents one after the other."""
        given = {"algorithms": ("rotor", "liu", "periodic"), "budget_fractions": (0.6, 0.8, 1.0), "seeds": (0, 1)}
        victims = [worker.pid for worker in local.workers.values()][:1]

        def kill_one(tally):
            if tally.last is not None and victims:
                os.kill(victims.pop(), signal.SIGKILL)

        where = f"dask://{address_of(local)}"
        first = remat.compare(folder, **given, executor=where)
        second = remat.compare(folder, **given, executor=where, progress=kill_one)
        assert victims == []
        assert stable(first) == stable(second) == stable(remat.compare(folder, **given, jobs=1))

    @pytest.mark.slow
    def test_jobs_that_the_cluster_forgets(self, local, tmp_path):
        """Earlier answers stay; unanswered jobs do not count as crashed. A dead scheduler has the same effect."""

        def restart(tally):
            if tally.last is not None:
                with distributed.Client(local, set_as_default=False) as other:
                    other.restart()

        given = {"algorithms": ("rotor", "test-hang"), "time_limit": 20, "output": tmp_path}
        with pytest.raises(remat.RematError, match="the dask scheduler was lost"):
            remat.compare(CHAIN, **given, executor=f"dask://{address_of(local)}", progress=restart)
        lines = (tmp_path / "journal.jsonl").read_text().splitlines()[1:]
        assert [json.loads(line)["algorithm"] for line in lines] == ["rotor"]


def test_a_scheduler_without_workers(misbehaving):
    with (
        distributed.LocalCluster(n_workers=0, **SETTINGS) as local,
        pytest.raises(remat.OptionError, match="no workers"),
    ):
        remat.compare(CHAIN, executor=f"dask://{address_of(local)}")


def test_what_is_no_executor():
    with pytest.raises(remat.OptionError, match="int is neither an address nor a cluster or client of dask"):
        remat.compare(CHAIN, executor=8786)


def test_a_missing_scheduler_is_reported(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with pytest.raises(remat.OptionError, match=r"no dask scheduler answers at .127\.0\.0\.1:9."):
        remat.compare(CHAIN, executor="dask://127.0.0.1:9")
