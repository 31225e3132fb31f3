"""Checkpointing in the tables: its runs in remat's graph take the memory that eager PyTorch takes."""

import pytest

import remat
import remat.torch
from benchmarks.torch_checkpoints import blocks_of, checkpointed, record, runs_of
from benchmarks.torch_times import ratio
from remat.bridges.torch.measure import LiveStorages
from tests.torch import models


def small_bert():
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    return models.bert_base(4, 32, vocab_size=97, **sizes)


def small_resnet():
    return models.resnet50(batch=2, pixels=32, depths=(2, 1, 1, 1), width=8, classes=5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factory", [small_bert, small_resnet], ids=lambda factory: factory.__name__)
def test_checkpointing_is_what_eager_runs(factory):
    module, args, kwargs = models.make(factory)
    captured = remat.torch.capture(module, *args, **kwargs)
    kept = remat.solve(captured.instance(), algorithm="keep-all")
    blocks = blocks_of(module)
    for number in (0, len(blocks) // 2, len(blocks)):
        chosen = list(range(number))
        recorded = record(module, args, kwargs, chosen)
        runs, _ = runs_of(captured, recorded)
        judged = remat.schedule_of(captured.instance(), runs)
        again = [seen for seen in recorded.seen if seen.phase == "again"]
        assert bool(again) is bool(number)
        assert len({seen.place[0] for seen in again}) == number
        assert judged.peak_memory["memory"] == pytest.approx(recorded.peak, rel=0.05), "small parts are not told apart"
        assert (judged.makespan > kept.makespan) is bool(number)
        module.zero_grad(set_to_none=True)
        with (
            LiveStorages([*module.parameters(), *module.buffers(), *args]) as live,
            checkpointed([blocks[place] for place in chosen]),
        ):
            models.loss_of(module(*args, **kwargs)).backward()
        assert live.peak == pytest.approx(recorded.peak, rel=0.001)


def test_ratios_have_intervals():
    rounds = [{"eager": 1.0 + 0.01 * (k % 5), "other": 1.2 + 0.02 * (k % 3)} for k in range(20)]
    middle, low, high = ratio(rounds, "other", "eager")
    assert middle == pytest.approx(1.22 / 1.02)
    assert 1.2 / 1.04 <= low < middle < high <= 1.24
    assert ratio(rounds, "eager", "eager") == (1, 1, 1)
