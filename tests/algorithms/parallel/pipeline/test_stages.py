"""Test that the searches' stage model is a relaxation: never more time or bytes than the placement."""

import pytest
from hypothesis import HealthCheck, given, settings

import remat
from remat.generate.pipeline import uniform
from remat.plugin import OptionError
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import pipelines
from remat.verifier import check
from remat_algorithms.parallel.pipeline.model import complete, evaluate
from remat_algorithms.parallel.pipeline.stages import SHAPES, placed, staging

DRAWN = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def weigh(document):
    """Compare all named orders of all placements; return how many there were."""
    problem, count = make_problem(remat.load(document)), 0
    for shape in SHAPES:
        try:
            staged = staging(problem, shape)
        except OptionError:  # too few layers, or devices that cannot run them
            continue
        for lists in staged.starts:
            lists = complete(staged.model, lists)
            seen = None if lists is None else evaluate(staged.model, lists)
            found = None if lists is None else placed(problem, staged.orders(lists))
            if seen is None or found is None:
                continue
            steps, makespan, estimated = found
            verified = check(problem.graph, problem.machine, steps)
            peaks = [verified.peaks[processor.name].size for processor in problem.machine.processors]
            # More only where many things happen at one instant.
            assert all(own >= peak for own, peak in zip(estimated, peaks, strict=True)), (shape, document)
            assert not staged.chained or seen.makespan <= makespan * (1 + 1e-9), (shape, document)
            assert all(own <= peak for own, peak in zip(seen.peaks, peaks, strict=True)), (shape, document)
            count += 1
    return count


def compare(count):
    seen = []

    @settings(max_examples=count, **DRAWN)
    @given(pipelines(streams=False))
    def run(document):
        seen.append(weigh(document))

    run()
    assert sum(seen) > count


def test_models_of_drawn_pipelines_equal_placement():
    compare(25)


@pytest.mark.slow
def test_models_of_many_drawn_pipelines_equal_placement():
    compare(1000)


@pytest.mark.parametrize("reads", [["input", "output"], ["output"], ["input"]])
def test_what_two_stages_of_a_device_hold_is_there_once(reads):
    """In a V, the last descending and the first ascending stage share a device, which holds values once."""
    document = uniform(devices=2, micro_batches=2, layers=4, weight_time=1, activation=1) | {"backward_reads": reads}
    document["layers"][0]["output_size"] = 8
    assert weigh(document) > 5
