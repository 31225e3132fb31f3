"""Test groups of stages: their expanded schedules run in the memory that the coarse chain counts."""

import random

import numpy as np
import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain import coarsening
from remat_algorithms.chain.coarsening import Groups, coarse_schedules
from remat_algorithms.chain.phase_matrix import Phases
from tests.seeds import seeds


def drawn(seed, stages):
    """Return a chain whose backwards read this and that."""
    rng = random.Random(seed)
    reads = [["input", "output"], ["output"], ["input"], []]
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "input_size": rng.randint(0, 9),
        "in_place": rng.random() < 0.2,
        "loss": {"workspace": rng.randint(0, 5)},
        "stages": [
            {
                "forward_time": rng.randint(0, 9),
                "backward_time": rng.randint(0, 9),
                "output_size": rng.randint(0, 9),
                "gradient_size": rng.randint(0, 9),
                "saved_size": rng.randint(0, 20),
                "forward_workspace": rng.choice([0, 0, 7]),
                "saving_workspace": rng.choice([0, 0, 9]),
                "backward_workspace": rng.choice([0, 0, 11]),
                "backward_reads": rng.choice(reads),
            }
            for _ in range(stages)
        ],
    }


@pytest.mark.parametrize("seed", seeds(30, 400))
def test_a_schedule_of_groups_is_one_of_the_stages_in_no_more_memory(seed):
    chain = make_problem(remat.load(drawn(seed, random.Random(seed).randint(1, 12)))).chain
    groups = Groups.of(chain, random.Random(-seed).randint(1, chain.length))
    assert groups.cuts[0] == 0
    assert groups.cuts[-1] == chain.length
    assert (np.diff(groups.cuts) > 0).all()
    count = groups.chain.length
    rng = random.Random(seed)
    for _ in range(4):
        # Some groups are saved at once, the others forward again before their backwards.
        saved = [rng.random() < 0.5 for _ in range(count)]
        runs = [count + group if saved[group] else group for group in range(count)] + [2 * count]
        last = count
        for group in reversed(range(count)):
            if not saved[group]:
                begin = max((k for k in range(group) if saved[k]), default=-1) + 1
                runs += [*range(begin, group), count + group]
            runs.append(2 * count + 1 + group)
            last = group
        assert last == 0
        own = groups.runs(runs)
        assert Phases.of(chain).peak(own) <= Phases.of(groups.chain).peak(runs)
        times = [*chain.forward_time, *chain.saving_forward_time, chain.loss_time, *chain.backward_time]
        merged = groups.chain
        of_groups = [*merged.forward_time, *merged.saving_forward_time, merged.loss_time, *merged.backward_time]
        assert sum(times[task] for task in own) == sum(of_groups[task] for task in runs)


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_schedules_fit_and_are_no_better_than_rotor(seed, monkeypatch):
    monkeypatch.setattr(coarsening, "GROUPS", (4, 8))
    document = drawn(seed, 20)
    whole = remat.solve(document, algorithm="store-all").peak_memory["memory"]
    least = remat.solve(document, algorithm="rotor", budget=0).least_budget.size
    for share in (0.3, 0.7):
        budget = int(least + share * (whole - least))
        problem = make_problem(remat.load(document), budget=budget)
        best = remat.solve(document, algorithm="rotor", budget=budget).makespan
        before = None
        for runs in coarse_schedules(problem, Context()):
            time = problem.graph.time[runs].sum()
            assert Phases.of(problem.chain).peak(runs) + problem.chain.static_memory <= budget
            assert time >= best
            assert before is None or time < before
            before = time


def test_long_chains_are_solved_by_groups(monkeypatch):
    from remat_algorithms.chain import chain_best

    monkeypatch.setattr(chain_best, "LONG", 30)
    monkeypatch.setattr(coarsening, "GROUPS", (5, 10))
    document = drawn(7, 40)
    whole = remat.solve(document, algorithm="store-all").peak_memory["memory"]
    result = remat.solve(document, algorithm="chain-best", budget=int(0.7 * whole))
    assert result.status == "feasible"
    assert [bound.source for bound in result.bounds if bound.source == "chain-best"]
    assert remat.solve(document, algorithm="chain-best", budget=whole).status == "optimal"
    assert remat.solve(document, algorithm="chain-best", budget=1).status == "infeasible"
