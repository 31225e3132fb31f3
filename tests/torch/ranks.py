"""The program of the processes of `test_ranks.py`: each rank writes its results to a file."""

import gc
import json
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WORK = {"algorithm": "dag-auto", "time_limit": 30}


def local(tensor):
    return getattr(tensor, "_local_tensor", tensor)


class Bytes(TorchDispatchMode):
    """The peak of all storages that operators read, write or return, as large as they are at each operator."""

    def __init__(self, fixed):
        super().__init__()
        self.fixed = {local(tensor).untyped_storage()._cdata for tensor in fixed}
        self.seen, self.peak = {}, 0

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        for part in tree_leaves((args, kwargs, returned)):
            if isinstance(part, torch.Tensor):
                storage = local(part).untyped_storage()
                if storage._cdata not in self.fixed and storage._cdata not in self.seen:
                    self.seen[storage._cdata] = StorageWeakRef(storage)
        now = 0
        for key in list(self.seen):
            storage = torch.UntypedStorage._new_with_weak_ptr(key)
            if storage is None:
                del self.seen[key]
            else:
                now += storage.nbytes()
        self.peak = max(self.peak, now)
        return returned


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.leave(nn.functional.gelu(self.enter(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.leave, self.drop = nn.Linear(width, width), nn.Dropout(0.2)

    def forward(self, x):
        heads = self.mix(self.norm(x)).unflatten(-1, (3, 4, -1)).movedim(2, 0).transpose(2, 3)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind())
        return x + self.drop(self.leave(mixed.transpose(1, 2).flatten(2)))


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.one(x)))


class Layers(nn.Module):
    """Blocks in a row, and a loss."""

    def __init__(self, kind, width, count):
        super().__init__()
        self.layers = nn.ModuleList(kind(width) for _ in range(count))
        self.last = nn.Conv2d(width, 1, 1) if kind is Convolution else nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x).square().mean()


MODELS = {
    "blocks": (lambda: Layers(Block, 32, 3), (256, 32)),
    "attention": (lambda: Layers(Attention, 32, 4), (8, 24, 32)),
    "convolution": (lambda: Layers(Convolution, 8, 4), (8, 8, 12, 12)),
}


def made(name, rank):
    """A model that is the same on all ranks, and inputs that are not."""
    factory, shape = MODELS[name]
    torch.manual_seed(0)
    module = factory()
    torch.manual_seed(rank + 1)
    return module, torch.randn(shape)


def sharded(name, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module, x = made(name, rank)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh), x


def parallel(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, _ = made("blocks", rank)
    _, x = made("blocks", 0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in module.layers:
        parallelize_module(layer, mesh, {"enter": ColwiseParallel(), "leave": RowwiseParallel()})
    return module, x


def step(module, x):
    """One training step from the same random state, and its gradients."""
    module.zero_grad()
    torch.manual_seed(7)
    loss = module(x)
    loss.backward()
    return [local(parameter.grad) for parameter in module.parameters()]


def trained(module, x, reference):
    """Make three steps, the last one measured, and compare it with those of the reference."""
    for _ in range(2):
        step(module, x)
    gc.collect()
    module.zero_grad()
    with Bytes([x, *module.parameters(), *module.buffers()]) as live:
        gradients = step(module, x)
    plan = module.plan
    same = all(torch.equal(one, two) for one, two in zip(gradients, reference, strict=True))
    fixed = sum(size for name, size in plan.split.items() if name not in ("activations", "gradients", "reserve"))
    return {
        "peak": plan.peak,
        "moving": plan.peak - fixed,
        "live": live.peak,
        "same": same,
        "overhead": plan.overhead,
        "split": dict(plan.split),
    }


def of_fsdp(rank, name, budgets):
    import remat.torch

    module, x = sharded(name, rank)
    for _ in range(3):
        reference = step(module, x)
    buffers = [buffer.clone() for buffer in module.buffers()]
    found = []
    for budget in budgets:
        module, x = sharded(name, rank)
        found.append(trained(remat.torch.compile(module, budget, **WORK), x, reference))
        found[-1]["buffers"] = all(map(torch.equal, module.buffers(), buffers))
    return found


def of_tensor_parallelism(rank, budgets):
    import remat.torch

    module, x = parallel(rank)
    reference = step(module, x)
    compiled, _ = parallel(rank)
    compiled = torch.compile(compiled, backend="aot_eager")
    aot = step(compiled, x)
    found = []
    for budget in budgets:
        planned = remat.torch.compile(parallel(rank)[0], budget, **WORK)
        found.append(trained(planned, x, aot))
        found[-1]["eager"] = max(float((a - b).abs().max()) for a, b in zip(reference, aot, strict=True))
    return found


def of_ddp(rank):
    import remat.torch

    module, x = made("blocks", rank)
    ddp = nn.parallel.DistributedDataParallel(module)
    reference = [gradient.clone() for gradient in step(ddp, x)]
    module, x = made("blocks", rank)
    plain = remat.torch.compile(made("blocks", rank)[0])
    step(plain, x)
    budget = int(0.9 * plain.plan.peak) + sum(p.numel() * 4 for p in module.parameters())
    ddp = remat.torch.compile(nn.parallel.DistributedDataParallel(module), budget, **WORK)
    found = trained(ddp, x, reference)
    return found | {"budget": budget, "buckets": sum(p.numel() * 4 for p in module.parameters())}


def refused(call):
    """The message of an error."""
    import remat.torch

    try:
        call()
    except remat.torch.TorchError as error:
        return str(error)
    return ""


def refusals(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    import remat.torch

    module, _ = made("blocks", rank)
    mesh = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("data", "model"))
    for layer in module.layers:
        parallelize_module(layer, mesh["model"], {"enter": ColwiseParallel()})
        fully_shard(layer, mesh=mesh["data"])
    both = fully_shard(module, mesh=mesh["data"])
    alone, x = sharded("blocks", rank)
    given = remat.torch.compile(sharded("blocks", rank)[0], (90_000_000, 80_000_000)[rank], **WORK)

    def unequal():
        for _ in range(2):
            step(given, x)

    return {
        "both": refused(lambda: remat.torch.compile(both, "90%")),
        "host": refused(lambda: remat.torch.compile(alone, "90%", host="1GB")),
        "inductor": refused(lambda: remat.torch.compile(alone, "90%", inductor=True)),
        "list": refused(lambda: remat.torch.compile(alone, ["1MB", "1MB"])),
        "unequal": refused(unequal),
    }


def all_of_it(rank):
    """All cases that are quick."""
    cases = {
        "fsdp": lambda: of_fsdp(rank, "blocks", ("100%", "90%", "80%")),
        "tensor": lambda: of_tensor_parallelism(rank, ("100%", "88%")),
        "ddp": lambda: of_ddp(rank),
        "refusals": lambda: refusals(rank),
        "uninitialised": lambda: uninitialised(rank),
    }
    found = {}
    for name, case in cases.items():
        torch._dynamo.reset()  # or PyTorch remembers where another case broke the graph
        found[name] = case()
    return found


def others(rank):
    """The other models."""
    return {name: of_fsdp(rank, name, ("100%", "90%", "80%")) for name in ("attention", "convolution")}


def failing(rank):
    """A budget that is too small on the second rank only."""
    import remat.torch

    module, x = sharded("blocks", rank)
    planned = remat.torch.compile(module, ("90%", "20KB")[rank], **WORK)
    for _ in range(3):
        step(planned, x)


def raising(rank):
    """A step that raises on the second rank only."""
    import remat.torch

    module, x = sharded("blocks", rank)
    planned = remat.torch.compile(module, "90%", **WORK)
    for number in range(4):
        if rank and number == 3:
            raise ValueError("no more data")
        step(planned, x)


def uninitialised(rank):
    import remat.torch

    module, _ = sharded("blocks", rank)
    dist.barrier()
    dist.destroy_process_group()
    return refused(lambda: remat.torch.compile(module, "90%"))


def work(rank, name, port, folder):
    """Run one of the functions above as a rank of two."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    code = 0
    try:
        found = globals()[name](rank)
        if dist.is_initialized():
            dist.barrier()
    except BaseException as error:
        found, code = {"error": str(error), "kind": type(error).__name__, "trace": traceback.format_exc()}, 1
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    sys.stdout.flush()
    os._exit(code)  # threads of gloo may abort a process that ends differently
