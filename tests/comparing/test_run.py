"""`remat.compare`: cells for everything, limits that hold, runs that go on."""

import csv
import io
import json
import os
import random
import subprocess
import sys
import time

import pytest

import remat
from remat.comparing import run as comparing
from remat.comparing import supervision
from remat.comparing.cells import Outcome
from remat.comparing.plan import Described, Request, Source, _hash, jobs_of
from remat.plugin.registry import Algorithm
from tests.cli.helpers import CHAIN

TREE = {
    "schema": "remat.instance/1",
    "kind": "tree",
    "units": {"time": "unit", "memory": "unit"},
    "parent": [-1, 0, 0],
    "output_size": [1, 2, 3],
}


def outcomes(comparison):
    return {(c.job.instance, c.job.algorithm, c.job.budget, c.job.seed): str(c.answer.outcome) for c in comparison}


def stable(comparison):
    """The fields that do not depend on the clock."""
    timed = ("seconds", "solve_seconds")
    return [{k: v for k, v in record.items() if k not in timed} for record in comparison.to_records()]


def test_every_combination_is_a_cell(folder):
    found = remat.compare(folder, algorithms=("rotor", "liu"), budgets=(9, "30"), seeds=(0, 1), jobs=2)
    expected = {("chains/broken", "", "", 0): "unreadable"}
    for seed in (0, 1):
        for budget in ("9", "30"):
            for chain in ("chains/tiny", "more/tiny"):
                expected[chain, "rotor", budget, seed] = "infeasible" if budget == "9" else "optimal"
                expected[chain, "liu", budget, seed] = "refused"
            expected["trees/pair", "liu", budget, seed] = "optimal"
            expected["trees/pair", "rotor", budget, seed] = "refused"
    assert outcomes(found) == expected
    assert not found.interrupted


def test_shares_are_budgets_on_the_machine_that_is_used(folder):
    wide = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 2}]}
    for machine in (None, wide):
        peak = remat.show(CHAIN, machine=machine).no_recompute_peak
        found = remat.compare(
            CHAIN,
            algorithms="keep-all",
            budgets=["75%", "100%"],
            budget_fractions=[0.75],
            machine=machine,
            jobs=1,
        )
        cells = {cell.job.budget: cell for cell in found}
        assert {budget: cell.job.capacity for budget, cell in cells.items()} == {
            "75%": 75 * peak // 100,
            "100%": peak,
        }
        assert len(found) == 2


def test_instances_in_memory():
    found = remat.compare([remat.load(CHAIN), TREE], algorithms="keep-all", jobs=1)
    assert outcomes(found) == {("tiny", "keep-all", "", 0): "optimal", ("instance", "keep-all", "", 0): "optimal"}


def test_figures_are_those_of_solve():
    found = remat.compare([CHAIN, TREE], algorithms="all", budget_fractions=(1.0, 0.8), jobs=1)
    assert {cell.job.family for cell in found} == {"given"}
    assert {cell.job.instance for cell in found} == {"tiny", "instance"}
    solved = [cell for cell in found if cell.answer.solved]
    assert len(solved) > 20
    for cell in solved:
        document = CHAIN if cell.job.kind == "chain" else TREE
        result = remat.solve(document, algorithm=cell.job.algorithm, budget=cell.job.capacity)
        assert cell.answer.makespan == result.makespan
        assert cell.answer.peak_memory == result.peak_memory
        if cell.job.algorithm == "rotor":
            assert cell.answer.class_bound == max(bound.value for bound in result.bounds)
        assert cell.answer.steps == len(result.steps)
        assert str(cell.answer.outcome) == result.status
    names = {algorithm.name for algorithm in remat.algorithms(kind="tree", available=True)}
    assert {cell.job.algorithm for cell in found if cell.job.kind == "tree"} == names
    peak = remat.show(CHAIN).no_recompute_peak
    assert {cell.job.capacity for cell in found if cell.job.kind == "chain"} == {peak, peak * 8 // 10}


def test_fractions_of_a_storage_level_are_of_all_states():
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "steps": 10,
        "state_size": 8,
        "storage": [{"name": "ram", "slots": 3}],
    }
    (cell,) = remat.compare(document, algorithms="revolve", budget_fractions=(0.5,), jobs=1)
    assert cell.job.capacity == 9 * 8 // 2
    assert cell.answer.solved


def test_what_goes_wrong_is_a_cell(misbehaving, monkeypatch):
    monkeypatch.setattr(supervision, "GRACE", 0.3)
    names = [f"test-{name}" for name in ("crash", "die", "hog", "lie", "good")]
    cells = list(remat.compare(CHAIN, algorithms=names, time_limit=100, memory_limit="600MB", jobs=2))
    found = [*cells, *remat.compare(CHAIN, algorithms="test-hang", time_limit=0.2, jobs=1)]
    assert {cell.job.algorithm: str(cell.answer.outcome) for cell in found} == {
        "test-crash": "crashed",
        "test-die": "crashed",
        "test-hang": "time limit",
        "test-hog": "memory limit",
        "test-lie": "claim differs",
        "test-good": "optimal",
    }
    detail = {cell.job.algorithm: cell.answer.detail for cell in found}
    assert detail["test-crash"] == "test-crash failed: RuntimeError: something broke"
    assert detail["test-die"] == "the worker died (exit code 7): last words"
    assert "limit of 200 ms" in detail["test-hang"]
    assert "limit of 600 MB" in detail["test-hog"]
    assert "claims makespan 1" in detail["test-lie"]
    assert {cell.job.version for cell in found} == {"1.5"}


def test_a_second_run_asks_only_for_what_is_new(folder, tmp_path):
    tallies = []

    def run(**more):
        tallies.clear()
        return remat.compare(
            folder, algorithms=("rotor", "liu"), jobs=1, output=tmp_path / "out", progress=tallies.append, **more
        )

    first = run()
    # Two equal documents, one job.
    assert (tallies[-1].total, tallies[-1].known) == (2, 0)
    second = run()
    assert (tallies[-1].total, tallies[-1].known) == (0, 2)
    assert first.cells == second.cells
    run(budgets=(30,))
    assert (tallies[-1].total, tallies[-1].known) == (2, 0)
    run(rerun="all")
    assert (tallies[-1].total, tallies[-1].known) == (2, 0)
    # Another content under the same name is another job.
    path = folder / "trees" / "pair.json"
    path.write_text(json.dumps(TREE | {"output_size": [1, 2, 4]}))
    run()
    assert (tallies[-1].total, tallies[-1].known) == (1, 1)


def test_each_solve_may_stop_before_its_limit(misbehaving, tmp_path):
    given = {"algorithms": "test-near", "output": tmp_path, "jobs": 1, "time_limit": 1000}
    asked = []
    for limits in ({"gap": "20%"}, {"patience": 0.01}, {"gap": 0.2}, {"gap": 0.1, "patience": "10ms"}):
        (cell,) = remat.compare(CHAIN, **given, **limits, progress=asked.append)
        asked.append((asked[-1].known, cell.answer.termination))
    told = [entry for entry in asked if isinstance(entry, tuple)]
    assert told[:3] == [
        (0, "gap reached"),
        (0, "patience over"),
        (1, "gap reached"),
    ]  # 20% is 0.2: one job, which the journal has
    assert told[3][0] == 0


def test_earlier_ends_are_part_of_a_job_only_where_they_are_given():
    described = Described(
        source=Source(label="a", path="a", family="a"),
        digest="d",
        kind="chain",
        time_unit="unit",
        memory_unit="unit",
        peak=9,
    )

    def key(**limits):
        (job,) = jobs_of(Request(algorithms=("rotor",), **limits), described)
        return job.key

    identity = ["d", None, "rotor", remat.__version__, {}, None, 0, 10.0, 1]
    assert key() == _hash(identity)  # as it was before there were any
    assert len({key(), key(gap=0.1), key(patience=0.1), key(gap=0.1, patience=0.1), key(gap=0.0)}) == 5


@pytest.mark.parametrize("name", ["test-good", "auto"])
def test_a_changed_source_of_a_plug_in_runs_again(misbehaving, tmp_path, name):
    """Even without a new version, as while it is written; auto may run it as well."""
    asked = {"algorithms": (name,), "output": tmp_path / "results", "jobs": 1, "time_limit": 1.0}
    solved = []
    for _ in range(3):
        tallies = []
        remat.compare(CHAIN, **asked, progress=tallies.append)
        solved.append(tallies[-1].total)
        if len(solved) == 2:
            source = tmp_path / "site" / "misbehaving.py"
            source.write_text(source.read_text() + "# edited\n")
    assert solved == [1, 0, 1]


def test_only_failures_run_again(misbehaving, tmp_path):
    tallies = []
    for rerun in (None, None, "failed"):
        tallies.clear()
        remat.compare(
            CHAIN,
            algorithms=("test-crash", "test-good"),
            jobs=1,
            output=tmp_path,
            rerun=rerun,
            progress=tallies.append,
        )
    assert (tallies[-1].total, tallies[-1].known) == (1, 1)


def test_ctrl_c_keeps_what_there_is(misbehaving, tmp_path):
    def stop(tally):
        if tally.last is not None:
            raise KeyboardInterrupt

    started = time.monotonic()
    found = remat.compare(
        CHAIN, algorithms=("test-good", "test-hang"), time_limit=300, jobs=2, output=tmp_path, progress=stop
    )
    assert time.monotonic() - started < 200
    assert found.interrupted
    assert [cell.job.algorithm for cell in found] == ["test-good"]
    again = remat.compare(CHAIN, algorithms="test-good", time_limit=300, jobs=1, output=tmp_path)
    assert [cell.answer for cell in again] == [cell.answer for cell in found]


PROGRAM = """
import sys, remat
if __name__ == "__main__":
    remat.compare(sys.argv[1], algorithms=sys.argv[3].split(","), budget_fractions=(.6, .8, 1.0), seeds=(0, 1),
                  jobs=2, output=sys.argv[2], time_limit=20)
"""


def killed_runs(folder, output, algorithms, *, kills, seed):
    """Restart a comparison repeatedly, and kill it at random moments after further answers."""
    chance = random.Random(seed)
    journal = output / "journal.jsonl"
    for _ in range(kills):
        size = journal.stat().st_size if journal.exists() else 0
        wanted = size + chance.randrange(10_000)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(output), ",".join(algorithms)], start_new_session=True
        )
        while process.poll() is None and not (journal.exists() and journal.stat().st_size > wanted):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.wait()


def check_killed_runs(folder, tmp_path, algorithms, *, kills):
    killed_runs(folder, tmp_path / "killed", algorithms, kills=kills, seed=kills)
    given = {"algorithms": algorithms, "budget_fractions": (0.6, 0.8, 1.0), "seeds": (0, 1), "time_limit": 20}
    tallies = []
    resumed = remat.compare(folder, **given, jobs=2, output=tmp_path / "killed", progress=tallies.append)
    whole = remat.compare(folder, **given, jobs=2, output=tmp_path / "whole")
    assert stable(resumed) == stable(whole)
    lines = (tmp_path / "killed" / "journal.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines[1:]]
    # No cell is lost or repeated.
    assert len(keys) == len(set(keys)) == tallies[-1].total + tallies[-1].known
    assert tallies[-1].known > 0
    return tallies[-1]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_a_killed_run_goes_on(folder, tmp_path):
    check_killed_runs(folder, tmp_path, ("rotor", "periodic", "liu", "keep-all"), kills=2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_a_run_killed_ten_times_goes_on(tmp_path):
    names = ("rotor", "periodic", "liu", "keep-all", "revolve", "store-all", "recompute-all", "dag-order-exact")
    root = tmp_path / "instances"
    root.mkdir()
    for number in range(40):
        scaled = [stage | {"output_size": stage["output_size"] + number} for stage in CHAIN["stages"]]
        (root / f"chain{number}.json").write_text(json.dumps(CHAIN | {"stages": scaled}))
    last = check_killed_runs(root, tmp_path, names, kills=10)
    assert last.known > 50
    assert last.total > 50


@pytest.mark.slow
def test_two_thousand_small_instances(tmp_path):
    root = tmp_path / "instances"
    root.mkdir()
    for number in range(2000):
        (root / f"{number}.json").write_text(json.dumps(TREE | {"output_size": [1, 2, 3 + number]}))
    found = remat.compare(root, algorithms="liu", jobs=2, output=tmp_path / "out")
    assert len(found) == 2000
    assert {cell.answer.outcome for cell in found} == {Outcome.OPTIMAL}


OBJECT = Algorithm(
    name="mine",
    solver="mine:solve",
    kinds=("chain",),
    summary="",
    guarantee="heuristic",
    complexity="",
    reference="",
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithms": "rotr"}, "algorithms: unknown algorithm 'rotr'; did you mean 'rotor'"),
        ({"options": {"rotr": {}}}, "options: unknown algorithm 'rotr'"),
        ({"algorithms": ("rotor", "rough=rotr")}, "algorithms: unknown algorithm 'rotr'; did you mean 'rotor'"),
        ({"algorithms": (OBJECT,)}, "algorithms: 'mine' is not a name; a comparison runs algorithms by name"),
        ({"algorithms": OBJECT}, "register yours with an entry point"),
        ({"algorithms": "zzz"}, "unknown algorithm 'zzz'; `remat algorithms` lists those that are installed"),
        ({"algorithms": "rotor=rotor-float"}, "algorithms: 'rotor' is the name of an algorithm"),
        ({"algorithms": "all=rotor"}, "algorithms: 'all' is the name of an algorithm"),
        ({"algorithms": "a.b=rotor"}, "algorithms: 'a.b' cannot name an algorithm"),
        ({"algorithms": ("x=rotor", "x=revolve")}, "algorithms: 'x' is given twice"),
        ({"algorithms": ("rotor", "x=rotor")}, "'rotor' and 'x' are the same algorithm with the same options"),
        ({"algorithms": ("all", "x=rotor")}, "'x' and 'rotor' are the same algorithm with the same options"),
        ({"algorithms": "rough=rotor", "options": {"rouh": {}}}, "unknown algorithm 'rouh'; did you mean 'rough'"),
        ({"algorithms": "rough=rotor", "options": {"rough": {"gab": 1}}}, "has no option 'gab'"),
        ({"options": {"rotor": {"gab": "3%"}}}, "has no option 'gab'; did you mean 'gap'"),
        ({"budgets": ("8GB", "3gb")}, "budgets: '3gb' has an unknown unit 'gb'"),
        ({"budgets": ("x%",)}, "budgets: 'x%' is not a share of the peak; write a size such as 8GB, or 80%"),
        ({"budgets": (-1,)}, "budgets: -1"),
        ({"budget_fractions": (0.0,)}, "budget_fractions: 0.0"),
        ({"budget_fractions": (float("nan"),)}, "budget_fractions: nan"),
        ({"seeds": (-1,)}, "seeds"),
        ({"seeds": (True,)}, "seeds"),
        ({"time_limit": "soon"}, "time_limit: 'soon'"),
        ({"gap": "little"}, "gap: 'little'"),
        ({"patience": "long"}, "patience: 'long'"),
        ({"memory_limit": "8,5GB"}, "memory_limit"),
        ({"jobs": 0}, "jobs"),
        ({"executor": "ssh://x"}, "executor: 'ssh://x'"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(remat.OptionError) as caught:
        remat.compare(CHAIN, **given)
    assert message in str(caught.value)


def test_labels_ask_one_algorithm_with_several_sets_of_options():
    given = {"algorithms": ("rotor", "rough=rotor"), "options": {"rough": {"gap": "30%"}}, "budgets": (22,)}
    plain, rough = remat.compare(CHAIN, **given, jobs=1)
    assert [(cell.job.algorithm, cell.job.solver) for cell in (plain, rough)] == [
        ("rotor", "rotor"),
        ("rough", "rotor"),
    ]
    assert rough.job.options == {"gap": 0.3}
    (alone,) = remat.compare(CHAIN, algorithms="rotor", options={"rotor": {"gap": "30%"}}, budgets=(22,), jobs=1)
    assert alone.job.key == rough.job.key


def test_what_is_asked_twice_is_one_cell():
    given = {"algorithms": ("rotor", "rotor"), "budgets": ("30", "30"), "budget_fractions": (0.5, 0.5), "seeds": (0, 0)}
    found = remat.compare(CHAIN, **given, jobs=1)
    assert [(cell.job.budget, cell.job.seed) for cell in found] == [("30", 0), ("50%", 0)]


def test_last_words_are_those_of_the_job(misbehaving):
    found = remat.compare(CHAIN, algorithms=("test-die", "test-good", "test-vanish"), jobs=1)
    assert [cell.answer.detail for cell in found][::2] == [
        "the worker died (exit code 7): last words",
        "the worker died (exit code 9)",
    ]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_a_killed_run_takes_its_solvers_children_along(misbehaving, tmp_path):
    program = "import sys, remat; remat.compare(sys.argv[1], algorithms='test-spawn', jobs=1)"
    instance = tmp_path / "instance.json"
    instance.write_text(json.dumps(CHAIN))
    noted = tmp_path / "pids"
    process = subprocess.Popen([sys.executable, "-c", program, str(instance)], env=os.environ | {"NOTED": str(noted)})
    try:
        wait_for(noted.exists)
    finally:
        process.kill()
        process.wait()
    for pid in noted.read_text().split():
        wait_for(lambda pid=int(pid): not alive(pid))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the system does not tell who started whom")
def test_sessions_of_their_own_end_with_the_worker(misbehaving, tmp_path, monkeypatch):
    monkeypatch.setattr("remat.comparing.supervision.GRACE", 3.0)
    noted = tmp_path / "pids"
    monkeypatch.setenv("NOTED", str(noted))
    found = remat.compare(CHAIN, algorithms="test-flee", jobs=1, time_limit=0.1)
    assert list(outcomes(found).values()) == ["time limit"]
    pids = noted.read_text().split()
    assert len(pids) == 2
    for pid in pids:
        wait_for(lambda pid=int(pid): not alive(pid))


def test_an_algorithm_that_ends_the_program_is_a_cell(misbehaving):
    (cell,) = remat.compare(CHAIN, algorithms="test-leave", jobs=1)
    assert cell.answer.outcome is Outcome.CRASHED
    assert cell.answer.detail == "test-leave asked to end the program, with code 0"


def wait_for(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_workers_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(remat.RematError, match="cannot start a worker process: No such file"):
        remat.compare(CHAIN, jobs=1)


def test_memory_of_a_container_is_shared_by_the_workers(monkeypatch):
    monkeypatch.setattr(comparing, "_container_memory", lambda: [10**9])
    assert comparing._memory(None, 2) == 450_000_000
    assert comparing._memory("3kB", 2) == 3000
    monkeypatch.setattr(comparing, "_container_memory", lambda: [2**63 - 4096])
    assert comparing._memory(None, 1) < 2**60


def test_bad_paths_are_refused(tmp_path):
    with pytest.raises(remat.OptionError, match="no such file"):
        remat.compare(tmp_path / "none.json")
    with pytest.raises(remat.OptionError, match=r"holds no \.json"):
        remat.compare(tmp_path)
    with pytest.raises(remat.OptionError, match="no instances"):
        remat.compare([])
    with pytest.raises(remat.OptionError, match="output: name a folder"):
        remat.compare(CHAIN, output="")
    (tmp_path / "file").write_text("")
    with pytest.raises(remat.OptionError, match="cannot make folder"):
        remat.compare(CHAIN, output=tmp_path / "file")


def test_budgets_that_do_not_fit_the_units():
    (cell,) = remat.compare(CHAIN, algorithms="rotor", budgets=("1GB",), jobs=1)
    assert cell.answer.outcome is Outcome.REFUSED
    assert "counts memory in units" in cell.answer.detail


def test_records_make_a_csv():
    found = remat.compare([CHAIN, TREE], algorithms="auto", jobs=1)
    from remat.comparing.report.tables import to_csv

    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [row["makespan"] for row in rows] == [str(cell.answer.makespan) for cell in found]
    assert {row["algorithm"] for row in rows} == {"auto"}
