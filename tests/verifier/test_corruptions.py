"""A valid schedule, spoilt: rejected with the right rule at the right step; and never judged unlike the oracle."""

import copy
import random
from functools import cache

import pytest

from remat.placement import place
from remat.verifier import residency
from tests.placement.step_lists import world_of
from tests.verifier.corruptions import CORRUPTIONS, Sample
from tests.verifier.judges import Case, rules, same_figures


def samples(name, worlds, lists=5):
    """Yield placed lists of drawn worlds."""
    for seed in range(worlds):
        world = world_of((name, seed), lists=lists)
        case = Case(world.document)
        for steps in world.lists:
            starts = place(case.graph, case.machine, case.columns(steps)).start.tolist()
            placed = [
                {key: value for key, value in step.items() if key != "after"} | {"start": start}
                for step, start in zip(steps, starts, strict=True)
            ]
            yield Sample(case, placed, case.verify(placed))


@cache
def pool():
    """A few hundred valid schedules, drawn once."""
    return [sample for sample in samples("pool", 70) if len(sample.steps) > 3]


@pytest.mark.parametrize("wanted", [18, pytest.param(80, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_rejected_with_the_right_rule_at_the_right_step(name, wanted):
    chance = random.Random(name)
    tried = 0
    for sample in chance.sample(pool(), len(pool())):
        assert sample.report.ok
        spoilt = CORRUPTIONS[name](chance, sample)
        if not spoilt:
            continue
        steps, blamed, expected = spoilt
        found = sample.case.verify(steps)
        assert {rule for step, rule in rules(found) if step == blamed} & expected, (steps, found.violations)
        if name != "unknown value dropped":  # the referee goes on without the value, the verifier without the step
            verdict = rules(sample.case.judge(steps))
            assert {rule for step, rule in verdict if step == blamed} & expected, (steps, verdict)
        tried += 1
        if tried == wanted:
            break
    assert tried >= 15


@pytest.mark.parametrize("chunk", range(3))
def test_a_byte_less_than_the_peak_is_too_little(chunk):
    tried = 0
    for sample in samples(f"capacity {chunk}", 25, lists=2):
        for name, peak in sample.report.peaks.items():
            if peak.size == 0:
                continue
            document = copy.deepcopy(sample.case.document)
            memory = next(m for m in document["machine"]["memories"] if m["name"] == name)
            memory["capacity"] = peak.size
            assert Case(document).verify(sample.steps).ok
            memory["capacity"] = peak.size - 1
            case = Case(document)
            found = rules(case.verify(sample.steps))
            assert (peak.step, "capacity") in found
            assert found == set(case.judge(sample.steps).violations)
            tried += 1
    assert tried >= 30


def mutated(chance, sample):
    """Change up to three things at random, for better or worse."""
    steps = copy.deepcopy(sample.steps)
    document = sample.case.document
    values = list(sample.case.graph.values)
    memories = [memory["name"] for memory in document["machine"]["memories"]]
    processors = [processor["name"] for processor in document["machine"]["processors"]]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not steps:
            break
        index = chance.randrange(len(steps))
        step = steps[index]
        times = [other["start"] for other in steps]
        span = max(times) + 1
        change = chance.randrange(12)
        if change == 0:
            del steps[index]
        elif change == 1:
            steps.insert(chance.randrange(len(steps) + 1), copy.deepcopy(step))
        elif change == 2:
            step["start"] = chance.choice(times)
        elif change == 3:
            step["start"] += chance.choice((1, 0.5, -0.5, 1e-12 * span, 3e-9 * span, -1e-12 * span, -3e-9 * span))
        elif change == 4:
            other = chance.randrange(len(steps))
            steps[index], steps[other] = steps[other], steps[index]
        elif change == 5 and "copy" in step:
            step["drop"] = not step.get("drop", False)
        elif change == 5:
            drops = step.get("drop", [])
            keep = [value for value in drops if chance.random() < 0.5]
            step["drop"] = keep if drops and chance.random() < 0.5 else sorted({*drops, chance.choice(values)})
        elif change == 6 and "copy" in step:
            step["copy"] = chance.choice(values)
        elif change == 6 and "run" in step:
            step["run"] = chance.choice(document["tasks"])["id"]
        elif change == 7 and "copy" in step:
            step["from"], step["to"] = chance.choice(memories), chance.choice(memories)
        elif change == 7 and "run" in step:
            step["on"] = chance.sample(processors, min(len(processors), chance.choice((1, 2))))
        elif change == 8 and "copy" in step:
            step |= {"bytes": max(0, step.get("bytes", 2) + chance.choice((-1, 0, 1))), "drop": True}
        elif change == 9:
            for later in steps[index:]:
                later["start"] += chance.choice((1, 0.25))
        elif change == 10:
            drop = {"drop": [chance.choice(values)], "memory": chance.choice(memories), "start": chance.choice(times)}
            steps.insert(index, drop)
        elif change == 11:
            steps.insert(index, {"run": chance.choice(document["tasks"])["id"], "start": chance.choice(times)})
    return steps


def judge_mutants(chunk, worlds):
    chance = random.Random(f"mutants {chunk}")
    accepted = rejected = 0
    for sample in samples(f"mutants {chunk}", worlds, lists=4):
        for _ in range(5):
            steps = mutated(chance, sample)
            if any(step["start"] < 0 for step in steps):
                continue
            report, verdict = sample.case.verify(steps), sample.case.judge(steps)
            assert report.ok == verdict.ok, (sample.case.document, steps, report.violations, verdict.violations)
            if report.ok:
                same_figures(report, verdict)
                accepted += 1
            else:
                assert rules(report) & rules(verdict), (steps, report.violations, verdict.violations)
                rejected += 1
    assert accepted > worlds
    assert rejected > worlds


@pytest.mark.parametrize("chunk", [0, 1, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (2, 3))])
def test_both_judges_agree_on_anything(chunk):
    judge_mutants(chunk, 25)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4, 24))
def test_both_judges_agree_on_much_more(chunk):
    judge_mutants(chunk, 100)


def test_keys_are_followed_in_parts(monkeypatch):
    monkeypatch.setattr(residency, "CHUNK", 3)
    judge_mutants(0, 10)
