"""The program of each rank in the tests of `remat.torch.stages`: it runs cases and records the results."""

import contextlib
import copy
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

import remat.torch
from remat.bridges.torch.measure import LiveStorages

WIDTH, WORDS, LENGTH, SAMPLES, BATCHES, BLOCKS = 32, 40, 8, 2, 8, 8


class Block(nn.Module):
    """A block of GPT: causal attention and a perceptron, each with dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden):
        heads = self.project(self.norm(hidden)).unflatten(-1, (3, 4, -1)).transpose(1, 3)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(2), is_causal=True)
        hidden = hidden + self.dropout(self.join(mixed.transpose(1, 2).flatten(2)))
        return hidden + self.dropout(self.wide(self.after(hidden)))


class GPT(nn.Module):
    """Returns logits."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Part(nn.Module):
    """Some blocks of a GPT, cut by hand: the reference."""

    def __init__(self, whole, first, end):
        super().__init__()
        self.blocks = whole.blocks[first:end]
        self.before = nn.ModuleList([whole.words, whole.places]) if first == 0 else None
        self.behind = nn.Sequential(whole.norm, whole.head) if end == BLOCKS else None

    def forward(self, hidden):
        if self.before is not None:
            hidden = self.before[0](hidden) + self.before[1](torch.arange(hidden.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return hidden if self.behind is None else self.behind(hidden)


class Normalised(nn.Module):
    """Returns its loss in a dict; batch normalisation in its blocks, and a mask that passes through all of them."""

    def __init__(self):
        super().__init__()
        parts = ((nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU()) for _ in range(4))
        self.blocks = nn.ModuleList(nn.Sequential(*own) for own in parts)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, values, labels, *, mask):
        for block in self.blocks:
            values = block(values) * mask
        return {"logits": self.last(values), "loss": functional.cross_entropy(self.last(values), labels)}


def normalised():
    """Return the module, positional and keyword arguments of a batch of eight micro-batches of six samples."""
    torch.manual_seed(5)
    args = torch.randn(8 * 6, WIDTH), torch.randint(3, (8 * 6,))
    return Normalised(), args, {"mask": torch.rand(8 * 6, 1)}


def loss(logits, target):
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def model(dropout=0.0):
    torch.manual_seed(3)
    return GPT(dropout)


def batch():
    made = torch.Generator().manual_seed(7)
    return torch.randint(WORDS, (2, BATCHES * SAMPLES, LENGTH), generator=made).unbind()


def pytorch_1f1b(whole, plan, rank, ranks):
    """Return gradients and losses of PyTorch's own 1F1B, on the plan's cut if each rank has one stage."""
    whole = copy.deepcopy(whole)
    first, end = rank * BLOCKS // ranks, (rank + 1) * BLOCKS // ranks
    if len(plan["stages"]) == ranks:
        first, end = plan["stages"][rank]["layers"]["from"] - 1, plan["stages"][rank]["layers"]["to"]
    part = Part(whole, first, end)
    schedule = Schedule1F1B(PipelineStage(part, rank, ranks, torch.device("cpu")), BATCHES, loss_fn=loss)
    tokens, targets = batch()
    losses = []
    torch.manual_seed(11)
    if rank == 0:
        schedule.step(tokens)
    else:
        schedule.step(target=targets if rank + 1 == ranks else None, losses=losses)
    named = {name: one.grad for name, one in whole.named_parameters() if one.grad is not None}
    return named, [float(one) for one in losses]


def watch(stages, seen):
    """Write down the operations that PyTorch runs on each stage, and how many micro-batches it holds then."""
    calls = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
    for stage in stages.schedule._stages:
        for name, letter in calls.items():
            method = getattr(stage, name)

            def run(number, *args, own=method, stage=stage, letter=letter, **kwargs):
                letter = "I" if letter == "B" and not kwargs["full_backward"] else letter
                seen["order"].append(f"{stage.stage_index}{letter}{number}")
                returned = own(number, *args, **kwargs)
                held = len(stage.fwd_cache) + len(stage.backward_state)
                seen["held"][stage.stage_index] = max(held, seen["held"].get(stage.stage_index, 0))
                return returned

            setattr(stage, name, run)
        method = stage.submod.run_again

        def again(number, own=method, stage=stage):
            seen["order"].append(f"{stage.stage_index}R{number}")
            own(number)

        stage.submod.run_again = again


def planned_step(case, rank, ranks):
    """Run one case by `remat.torch.stages`, and compare it with PyTorch's own 1F1B."""
    tokens, targets = batch()
    whole = model(case["dropout"])
    expected, expected_losses = pytorch_1f1b(whole, case["plan"], rank, ranks)
    stages = remat.torch.stages(whole, case["plan"], (tokens[:SAMPLES],), blocks="blocks.*", loss=loss)
    watched = {"order": [], "held": {}}
    watch(stages, watched)
    torch.manual_seed(11)
    losses = stages.step(tokens, target=targets)
    seen = copy.deepcopy(watched)
    found = {name: one.grad for name, one in stages.named_parameters()}
    every = [None] * ranks
    dist.all_gather_object(every, (expected, expected_losses, found, [float(one) for one in losses]))
    wanted = {name: one for own, _, _, _ in every for name, one in own.items()}
    got = {name: one for _, _, own, _ in every for name, one in own.items()}
    seen["same names"] = wanted.keys() == got.keys() == dict(whole.named_parameters()).keys()
    seen["differ"] = [name for name in wanted if not torch.equal(wanted[name], got[name])]
    seen["losses"] = [own for _, own, _, _ in every if own] == [own for _, _, _, own in every if own]
    seen["live"] = live_peak(stages, tokens, targets)
    return seen


def live_peak(stages, tokens, targets):
    """Return the peak of storages, except parameters, gradients and the batch, in a further step."""
    trained = list(stages.parameters())
    for one in trained:
        one.grad.zero_()
    live = LiveStorages([*trained, *(one.grad for one in trained), tokens, targets])
    with live:
        stages.step(tokens, target=targets)
    return live.peak


def module_with_loss(case, rank, ranks):
    """Compare a module that returns its loss with eager PyTorch, one micro-batch after the other."""
    del rank, ranks
    module, args, kwargs = normalised()
    plain = copy.deepcopy(module)
    parts = [[one.chunk(8)[number] for one in (*args, *kwargs.values())] for number in range(8)]
    stages = remat.torch.stages(module, case["module"], tuple(parts[0][:2]), {"mask": parts[0][2]}, blocks="blocks.*")
    losses = stages.step(*args, **kwargs)
    expected = [plain(values, labels, mask=mask)["loss"] for values, labels, mask in parts]
    for one in expected:
        one.backward()
    wanted = {name: one.grad / 8 for name, one in plain.named_parameters()}
    buffers = dict(plain.named_buffers())
    own = [
        name for layer in stages.modules.values() for one in layer.layers for name in names_of(module, one.call.block)
    ]
    return {
        "gradients": [name for name, one in stages.named_parameters() if not torch.equal(one.grad, wanted[name])],
        "parameters": sorted(name for name, _ in stages.named_parameters()),
        "buffers": [name for name in own if not torch.equal(module.get_buffer(name), buffers[name])],
        "written": len(own),
        "losses": [float(one.detach()) for one in expected] == [float(one) for one in losses],
        "last": stages.last,
    }


def names_of(module, block):
    """Return the names of a block's buffers in its module."""
    own = {id(one) for one in block.buffers()}
    return [name for name, one in module.named_buffers() if id(one) in own]


def tied_ends(case, rank, ranks):
    """Compare gradients and the updated copies of a tied embedding with eager PyTorch."""
    del ranks
    whole = model()
    whole.head.weight = whole.words.weight
    plain = copy.deepcopy(whole)
    tokens, targets = batch()
    stages = remat.torch.stages(whole, case["tied"], (tokens[:SAMPLES],), blocks="blocks.*", loss=loss)
    stages.step(tokens, target=targets)
    for number in range(BATCHES):
        part = slice(number * SAMPLES, (number + 1) * SAMPLES)
        (loss(plain(tokens[part]), targets[part]) / BATCHES).backward()
    torch.optim.AdamW(stages.parameters(), lr=0.1).step()
    wanted = dict(plain.named_parameters())
    return {
        "errors": {name: float((one.grad - wanted[name].grad).abs().max()) for name, one in stages.named_parameters()},
        "copy": whole.head.weight.detach().clone(),
        "moved": not torch.equal(whole.head.weight, plain.head.weight),
        "held": "words.weight" in dict(stages.named_parameters()),
    }


KINDS = {"tied": tied_ends, "plan": planned_step, "module": module_with_loss}


def refusal(case, rank, ranks):
    """Return the message of a case that is refused, and the seconds that it took."""
    del ranks
    tokens, targets = batch()
    whole = model()
    begun = time.monotonic()
    try:
        plan = case["plans"][rank]
        blocks = case.get("blocks", {}).get(rank, "blocks.*")
        stages = remat.torch.stages(whole, plan, (tokens[:SAMPLES],), blocks=blocks, loss=loss)
        if rank == case.get("fails"):
            stages.modules[str(rank)].register_forward_hook(fail_at_third())
        stages.step(tokens[:-1] if case.get("odd") else tokens, target=targets)
    except remat.RematError as error:
        told = str(error)
        with contextlib.suppress(remat.RematError, UnboundLocalError):
            stages.step(tokens, target=targets)
            told += " (and ran a second time)"
        return {"message": told, "seconds": time.monotonic() - begun}
    return {"message": "", "seconds": time.monotonic() - begun}


def fail_at_third():
    calls = []

    def hook(*_):
        calls.append(None)
        if len(calls) == 3:
            raise ValueError("no third micro-batch\nand a second line")

    return hook


def run(rank, ranks, folder, cases):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    found = {}
    for name, case in cases.items():
        kind = next((KINDS[key] for key in KINDS if key in case), refusal)
        found[name] = kind(case, rank, ranks)
        dist.barrier()
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def run_and_die(rank, ranks, folder, plan, at):
    """Rank 1 ends silently, in its third forward or before; the others record their errors."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    tokens, targets = batch()
    if rank == 1 and at == "start":
        os._exit(3)
    begun = time.monotonic()
    try:
        stages = remat.torch.stages(model(), plan, (tokens[:SAMPLES],), blocks="blocks.*", loss=loss)
        if rank == 1:
            stages.modules["1"].register_forward_hook(die_at_third())
        begun = time.monotonic()
        stages.step(tokens, target=targets)
    except remat.RematError as error:
        torch.save({"message": str(error), "seconds": time.monotonic() - begun}, f"{folder}/{rank}.pt")
    os._exit(0)


def die_at_third():
    calls = []

    def hook(*_):
        calls.append(None)
        if len(calls) == 3:
            os._exit(3)

    return hook
