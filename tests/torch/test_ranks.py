"""Modules of several processes: FSDP2, tensor parallelism and DDP on two gloo ranks."""

import json
import multiprocessing
import socket

import pytest

from tests.torch.ranks import work

END_OF_OTHERS = 30
"""Seconds in which a rank ends when another one has failed."""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(name, folder):
    context = multiprocessing.get_context("spawn")
    port = free_port()
    ranks = [context.Process(target=work, args=(rank, name, port, str(folder))) for rank in range(2)]
    for rank in ranks:
        rank.start()
    return ranks


def results(name, folder):
    ranks = start(name, folder)
    for rank in ranks:
        rank.join()
    found = [json.loads((folder / f"{number}.json").read_text()) for number in range(2)]
    for rank, one in zip(ranks, found, strict=True):
        assert rank.exitcode == 0, one["trace"]
    return found


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return results("all_of_it", tmp_path_factory.mktemp("ranks"))


def check_fsdp(rows):
    for row in rows:
        assert row["same"], "gradients equal those of FSDP2 alone"
        assert row["buffers"]
        assert row["live"] <= row["moving"] + 64
        assert row["live"] >= 0.9 * row["moving"]
    whole, ninety, eighty = rows
    assert whole["overhead"] == 0
    assert ninety["peak"] <= 0.9 * whole["peak"]
    assert eighty["peak"] <= 0.8 * whole["peak"]
    assert eighty["overhead"] > 0


def test_fsdp_at_three_budgets(quick):
    for rank in quick:
        check_fsdp(rank["fsdp"])
        blocks, last = 3 * (2 * 32 + 128 * 33 + 32 * 129), 33
        assert rank["fsdp"][0]["split"]["parameters"] == blocks * 4 / 2 + last * 4, "rows of one are padded"


@pytest.mark.slow
def test_fsdp_of_other_models(tmp_path):
    for rank in results("others", tmp_path):
        for rows in rank.values():
            check_fsdp(rows)


def test_tensor_parallelism_runs_its_collectives_once(quick):
    for rank in quick:
        whole, less = rank["tensor"]
        assert whole["overhead"] == 0 < less["overhead"]
        assert less["peak"] <= 0.88 * whole["peak"]
        for row in (whole, less):
            assert row["same"], "gradients equal those of aot_eager"
            assert row["eager"] < 1e-6
            assert row["moving"] - 64 <= row["live"] <= row["moving"] + 64
            # The first layer of a block has its rows, the second its columns on the rank; all else is on both.
            parameters = 3 * (2 * 32 + 64 * 33 + 32 * 64 + 32) + 33
            assert row["split"]["parameters"] == parameters * 4
            assert row["split"]["inputs"] == 256 * 32 * 4


def test_ddp_is_planned_with_its_buckets(quick):
    for rank in quick:
        row = rank["ddp"]
        assert row["same"]
        assert row["overhead"] > 0
        assert row["split"]["reserve"] == row["buckets"]
        assert row["peak"] + row["buckets"] <= row["budget"]
        assert row["moving"] - 64 <= row["live"] <= row["moving"] + 64


def test_what_is_refused_in_one_line(quick):
    for rank in quick:
        messages = rank["refusals"]
        assert "tensor parallelism together with FSDP2" in messages["both"]
        assert "layers.0.enter.weight" in messages["both"]
        assert "cannot be planned with a host" in messages["host"]
        assert "inductor=False" in messages["inductor"]
        assert "not a list" in messages["list"]
        assert "unequal plans: their budgets are 90000000, 80000000" in messages["unequal"]
        assert all(message.count("\n") == 0 for message in messages.values())


@pytest.mark.parametrize(
    ("name", "said", "other"),
    [
        ("failing", "no schedule found within 20KB", "rank 1 has no plan: no schedule found within 20KB"),
        pytest.param("raising", "no more data", "", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails_ends_the_others(name, said, other, tmp_path):
    first, second = start(name, tmp_path)
    second.join()
    first.join(END_OF_OTHERS)
    ended = not first.is_alive()
    first.kill()
    assert ended
    assert first.exitcode == second.exitcode == 1
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert said in found[1]["error"]
    assert other in found[0]["error"]


def test_a_process_group_that_is_not_initialised(quick):
    for rank in quick:
        assert "the process group is not initialised" in rank["uninitialised"]
