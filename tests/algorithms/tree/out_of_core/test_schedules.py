"""Test schedules with evictions: steps, transfer times, refusals, and answers without enough memory."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.testing import AlgorithmSuite, strategies
from tests.algorithms.tree.out_of_core import oracle

# T0 reads v1 and v2; T2 reads v3. As post-order by numbers: T1, T3, T2, T0. With 8 bytes, one byte of v1 leaves
# before T3 (4 + 5 - 8), two more before T2 (4 + 5 + 2 - 8), and three come back before T0.
SMALL = oracle.tree([-1, 0, 0, 2], [1, 4, 2, 5])
BY_NUMBERS = {"traversal": "postorder", "divisible": True}

# Two chains w (6) -> u (2) under an empty root: T1 needs 8 bytes, and the first u waits during the second w.
CHAINS = oracle.tree([-1, 0, 0, 1, 2], [0, 2, 2, 6, 6])


def solve(document, algorithm="min-io-lsnf", options=None, **machine):
    return remat.solve(document, algorithm=algorithm, options=options, machine=oracle.machine(**machine))


def shown(result):
    """Steps as short texts."""
    texts = []
    for step in result.to_dict()["steps"]:
        if "run" in step:
            texts.append(step["run"])
        else:
            texts.append(f"{step['copy']}>{step['to']}" + (f" {step['bytes']}" if "bytes" in step else ""))
    return texts


# --- steps ------------------------------------------------------------------------------------------------------------


def test_parts_leave_as_late_and_as_little_as_possible():
    result = solve(SMALL, options=BY_NUMBERS, capacity=8)
    assert shown(result) == ["T1", "v1>disk 1", "T3", "v1>disk 2", "T2", "v1>memory 3", "T0"]
    assert all(step.get("drop") is True for step in result.to_dict()["steps"] if "copy" in step)
    assert result.notes == ("I/O volume 3, the least of this traversal: written to disk in 2 evictions, and read back",)
    assert result.makespan == 4
    assert result.status == "optimal"  # free links


def test_whole_values_are_plain_copies():
    result = solve(SMALL, options={"traversal": "postorder"}, capacity=8)
    assert shown(result) == ["T1", "v1>disk", "T3", "T2", "v1>memory", "T0"]
    assert oracle.volume(result) == 4
    # A part that turns out to be all of the value goes as a copy with drop, too; the rest of one as a part.
    result = solve(oracle.tree([-1, 0, 0, 2], [1, 2, 2, 7]), options=BY_NUMBERS, capacity=9)
    assert shown(result) == ["T1", "T3", "v1>disk", "T2", "v1>memory", "T0"]
    result = solve(oracle.tree([-1, 0, 0, 2], [0, 3, 2, 7]), options=BY_NUMBERS, capacity=9)
    assert shown(result) == ["T1", "v1>disk 1", "T3", "v1>disk 2", "T2", "v1>memory", "T0"]


def test_an_out_tree_runs_backwards():
    outward = SMALL | {"orientation": "out"}
    result = solve(outward, options=BY_NUMBERS, capacity=8)
    assert oracle.runs(result) == [0, 2, 3, 1]
    assert oracle.volume(result) == 3
    assert result.peak_memory["memory"] <= 8


def test_static_memory_counts():
    result = solve(SMALL | {"static_memory": 100}, options=BY_NUMBERS, capacity=108)
    assert oracle.volume(result) == 3
    assert result.peak_memory["memory"] == 108


@pytest.mark.parametrize("algorithm", oracle.ALGORITHMS)
def test_what_fits_moves_nothing(algorithm):
    for machine in ({"machine": oracle.machine(11)}, {"budget": 11}, {}):
        result = remat.solve(SMALL, algorithm=algorithm, **machine)
        assert result.status == "optimal"
        assert not any(result.report.transferred.values())
        assert result.notes == ("I/O volume 0: everything fits in the memory",)


# --- time -------------------------------------------------------------------------------------------------------------


def test_synchronous_transfers_add_to_the_makespan():
    """4 runs, and 3 bytes in each direction at one per unit, on the processor's channel."""
    result = solve(SMALL, options=BY_NUMBERS, capacity=8, bandwidth=1, channel="cpu")
    assert result.makespan == 10
    assert [step["start"] for step in result.to_dict()["steps"]] == [0, 1, 2, 3, 5, 6, 9]
    with_latency = solve(SMALL, options=BY_NUMBERS, capacity=8, bandwidth=1, latency=2, channel="cpu")
    assert with_latency.makespan == 16  # three copies


def test_overlapped_transfers_hide_behind_runs():
    """The second eviction leaves while T3 runs (until 4); T2 waits for its bytes; v1 is back at 8."""
    result = solve(SMALL, options=BY_NUMBERS, capacity=8, bandwidth=1)
    assert [step["start"] for step in result.to_dict()["steps"]] == [0, 1, 2, 2, 4, 5, 8]
    assert result.makespan == 9
    assert result.report.idle["cpu"] == 5  # the waiting is in the makespan
    longer = solve(SMALL | {"time": [1, 1, 1, 9]}, options=BY_NUMBERS, capacity=8, bandwidth=1)
    assert longer.makespan == 16  # T3 alone hides the two units of the second eviction


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(strategies.trees(exact=True), st.integers(0, 100), st.sampled_from(oracle.ALGORITHMS))
def test_every_schedule_is_within_the_memory(document, share, algorithm):
    document = document | {"machine": oracle.machine(bandwidth=2)}
    free = remat.solve(document, algorithm=algorithm)
    static = document.get("static_memory", 0)
    low, high = oracle.requirement(document) + static, free.peak_memory["memory"]
    memory = low + (high - low) * share // 100
    overlapped = remat.solve(document, algorithm=algorithm, budget=memory)
    machine = oracle.machine(memory, bandwidth=2, channel="cpu")
    synchronous = remat.solve(document, algorithm=algorithm, machine=machine)
    for result in (overlapped, synchronous):
        assert result.report.ok
        assert result.peak_memory["memory"] <= memory
        assert oracle.runs(result) == oracle.runs(overlapped)
    assert oracle.volume(overlapped) == oracle.volume(synchronous)
    # Everything on one resource: the makespan is the sum of all runs and transfers.
    assert synchronous.makespan == pytest.approx(synchronous.no_recompute_time + oracle.volume(synchronous))
    assert overlapped.makespan <= synchronous.makespan * (1 + 1e-12)


# --- no room ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", oracle.ALGORITHMS)
def test_below_the_largest_requirement_nothing_fits(algorithm):
    result = solve(SMALL, algorithm, capacity=6)
    assert result.status == "infeasible"
    assert result.scope == "all schedules"
    assert result.least_budget == LeastBudget(7, 0, sufficient=True)
    assert solve(SMALL, algorithm, capacity=7).report.ok
    assert solve(SMALL | {"static_memory": 5}, algorithm, capacity=11).least_budget.size == 12


@pytest.mark.parametrize("algorithm", oracle.ALGORITHMS)
def test_without_a_disk_the_traversal_must_fit(algorithm):
    peak = remat.solve(CHAINS, algorithm=algorithm).peak_memory["memory"]
    assert peak == 10
    for budget in (9, 7):
        result = remat.solve(CHAINS, algorithm=algorithm, budget=budget)
        assert result.scope is not None
        assert result.least_budget.size == peak
        assert result.least_budget.sufficient
        assert "machine file" in result.notes[0]
    # A link in one direction does not help.
    one_way = oracle.machine(9) | {"links": [{"source": "memory", "target": "disk"}]}
    assert remat.solve(CHAINS, algorithm=algorithm, machine=one_way).scope is not None


@pytest.mark.parametrize("algorithm", oracle.ALGORITHMS)
def test_a_small_disk_is_respected(algorithm):
    # 9 bytes: the waiting u goes, or one byte of it.
    result = solve(CHAINS, algorithm, capacity=9, disk=2)
    assert result.report.ok
    written = 1 if algorithm == "postorder-min-io" else 2
    assert oracle.volume(result) == result.peak_memory["disk"] == written
    full = solve(CHAINS, algorithm, capacity=9, disk=written - 1)
    assert full.least_budget == LeastBudget(written, full.least_budget.task, sufficient=True, memory=1)
    if written == 1:  # 9 + 0 bytes are less than the 10 that every schedule holds
        assert full.status == "infeasible"
        assert full.scope == "all schedules"
    else:  # whole values do not fit, parts would
        assert full.status == "unknown"
        assert "disk" in full.notes[0]


@pytest.mark.parametrize("algorithm", oracle.ALGORITHMS)
def test_too_small_in_both_memories(algorithm):
    result = solve(CHAINS, algorithm, capacity=7, disk=1)
    assert result.status == "infeasible"
    assert result.least_budget == LeastBudget(8, result.least_budget.task, sufficient=False)
    assert solve(CHAINS, algorithm, capacity=7, disk=2).least_budget.sufficient


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_are_checked():
    with pytest.raises(remat.OptionError, match="unknown memory 'tape'"):
        solve(SMALL, options={"disk": "tape"}, capacity=8)
    with pytest.raises(remat.OptionError, match="links to and from"):
        solve(SMALL, options={"disk": "memory"}, capacity=8)
    with pytest.raises(remat.OptionError, match="traversal"):
        solve(SMALL, options={"traversal": "best"}, capacity=8)
    with pytest.raises(remat.OptionError, match="k"):
        solve(SMALL, "min-io-best-k", options={"k": 0}, capacity=8)


def test_the_disk_may_be_listed_first():
    behind = oracle.machine(8)
    behind["memories"].reverse()
    one, other = (
        remat.solve(SMALL, algorithm="postorder-min-io", machine=machine) for machine in (behind, oracle.machine(8))
    )
    assert (one.makespan, one.peak_memory) == (other.makespan, other.peak_memory)


def test_the_disk_can_be_named():
    machine = oracle.machine(8)
    machine["memories"].append({"name": "tape"})
    machine["links"] += [{"source": "memory", "target": "tape"}, {"source": "tape", "target": "memory"}]
    result = remat.solve(SMALL, algorithm="min-io-lsnf", machine=machine, options=BY_NUMBERS | {"disk": "tape"})
    assert result.report.transferred["memory->tape"] == 3
    assert result.report.transferred["memory->disk"] == 0


def test_units_in_notes():
    result = solve(SMALL | {"units": {}}, options=BY_NUMBERS, capacity=8)
    assert "I/O volume 3 B," in result.notes[0]


# --- the suite, with a disk -------------------------------------------------------------------------------------------


class _WithDisk(AlgorithmSuite):
    examples = 8

    def instances(self, kind):
        links = st.sampled_from([{}, {"bandwidth": 2}, {"bandwidth": 3, "latency": 1, "channel": "cpu"}])
        disks = st.sampled_from([None, 3, 20])

        def put(drawn):
            document, link, disk = drawn
            return document | {"machine": oracle.machine(disk=disk, **link)}

        return st.tuples(strategies.trees(), links, disks).map(put)


for _name in oracle.ALGORITHMS:
    _class = type("Test" + _name.title().replace("-", ""), (_WithDisk,), {"algorithm": _name, "__module__": __name__})
    globals()[_class.__name__] = _class


WITH_A_DISK = ("postorder-min-io", "min-io-lsnf", "min-io-first-fit", "min-io-best-fit", "min-io-best-k")


def smallest_disks(document, memory):
    """Return the smallest disk with which each algorithm finds a schedule, and the minima proved with smaller disks."""
    found, proved = {}, []
    for algorithm in WITH_A_DISK:
        for disk in range(sum(document["output_size"]) + 1):
            result = remat.solve(document | {"machine": with_disk(memory, disk)}, algorithm=algorithm)
            if result.makespan is not None:
                found[algorithm] = disk
                break
            least = result.least_budget
            if least.scope == ALL_SCHEDULES and result.machine.memories[least.memory].name == "disk":
                proved.append((least.size, least.sufficient))
    return found, proved


def with_disk(memory, disk):
    return {
        "memories": [{"name": "memory", "capacity": memory}, {"name": "disk", "capacity": disk}],
        "links": [{"source": "memory", "target": "disk"}, {"source": "disk", "target": "memory"}],
    }


def test_no_algorithm_needs_less_than_a_proved_minimum_of_the_disk():
    chance = random.Random("small disks")
    looked = 0
    for _ in range(40):
        count = chance.randint(5, 9)
        parent = [-1] + [chance.randrange(node) for node in range(1, count)]
        size = [chance.randint(1, 8) for _ in range(count)]
        need = max(size[k] + sum(size[j] for j in range(count) if parent[j] == k) for k in range(count))
        document = {
            "schema": "remat.instance/1",
            "kind": "tree",
            "units": {"time": "unit", "memory": "unit"},
            "parent": parent,
            "output_size": size,
        }
        found, proved = smallest_disks(document, need)
        assert all(size <= min(found.values()) for size, _ in proved), (document, found, proved)
        looked += len(proved)
    assert looked > 3
