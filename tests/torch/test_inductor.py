"""Plans through Inductor: gradients and buffers as Inductor's, and no more bytes than predicted."""

import pickle
from contextlib import suppress
from functools import cache

import pytest
import torch

import remat.torch
from remat.bridges.torch.capture import Captured, dynamo_settings
from remat.bridges.torch.generated_code import Program, account
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.inductor import Attempt, Compiler, Rival, compile_plan, fuse
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.layout_copies import LAYOUT
from remat.bridges.torch.measure import allocator_peak
from tests.torch import models
from tests.torch.studies import WORK

NETWORKS = (models.mlp, models.conv, models.unet, models.gpt2)
LONG = [pytest.param(factory, marks=pytest.mark.slow) for factory in (models.unet, models.gpt2)]
SOLVER = {"algorithm": "dag-auto", "options": WORK}


@pytest.fixture(autouse=True, scope="module")
def one_compiler():
    """Compile in this process."""
    config = torch._inductor.config
    with config.patch(compile_threads=1):
        yield


class StopCompiling(Exception):
    pass


@cache
def fused(factory):
    """Inductor's joint graph of a network, with its groups."""
    module, args, kwargs = models.make(factory)
    found = []

    def partition(joint, given, *, num_fwd_outputs, **options):
        found.append(Captured(None, joint, num_fwd_outputs, (), None))
        fuse(found[0], given, num_fwd_outputs, **options)
        raise StopCompiling

    torch._dynamo.reset()
    call = torch.compile(module, backend=lambda graph, inputs: Compiler(graph, inputs).compile(partition))
    with dynamo_settings(), suppress(torch._dynamo.exc.BackendCompilerFailed):
        call(*args, **kwargs)
    return found[0]


def step(call, module, args, kwargs):
    """Loss, gradients and buffers after two steps, the second of which counts."""
    for _ in range(2):
        module.zero_grad()
        torch.manual_seed(3)
        loss = models.loss_of(call(*args, **kwargs))
        loss.backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    return [loss.detach(), *gradients, *(buffer.clone() for buffer in module.buffers())]


def planned(factory, **choices):
    module, args, kwargs = models.make(factory)
    torch._dynamo.reset()
    call = remat.torch.compile(module, inductor=True, **SOLVER, **choices)
    return call, step(call, call, args, kwargs)


def measured(call, module, factory):
    """Bytes that the allocator returns in one step."""
    _, args, kwargs = models.make(factory)
    module.zero_grad()
    return allocator_peak(lambda: models.loss_of(call(*args, **kwargs)).backward())[1]


@cache
def plain(factory):
    module, args, kwargs = models.make(factory)
    torch._dynamo.reset()
    with dynamo_settings():
        call = torch.compile(module, dynamic=False)
        return step(call, module, args, kwargs), measured(call, module, factory)


@pytest.mark.parametrize("factory", [models.mlp, models.conv, *LONG])
def test_without_a_budget_it_is_what_inductor_does(factory):
    right, peak = plain(factory)
    call, found = planned(factory)
    assert all(map(torch.equal, right, found))
    assert measured(call, call, factory) <= min(call.plan.peak, peak + 64)


@pytest.mark.parametrize("factory", [models.mlp, *LONG])
def test_recomputation_changes_no_gradient_and_keeps_the_predicted_peak(factory):
    right, _ = plain(factory)
    static = sum(fused(factory).static_bytes().values())
    whole, _ = planned(factory)
    budget = static + int(0.85 * (whole.plan.peak - static))
    call, found = planned(factory, budget=budget)
    plan = call.plan
    assert plan.peak <= budget
    assert sum(plan.split.values()) == plan.peak
    peak = measured(call, call, factory)
    predicted = plan.peak - static
    assert 0.9 * predicted <= peak <= predicted
    for expected, value in zip(right, found, strict=True):
        torch.testing.assert_close(value, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("factory", NETWORKS, ids=lambda factory: factory.__name__)
def test_groups_read_what_others_wrote(factory):
    captured = fused(factory)
    fusion, joint = captured.fusion, captured.joint
    there = set()
    for name, group in fusion.groups.items():
        assert there.issuperset(set(group.task.reads) - set(group.task.writes)), name
        there.update(group.task.writes)
    required = [member for group in fusion.groups.values() if group.required for member in group.members]
    needed = {name for name in joint.tasks if joint.nodes.get(name) is not None and joint.nodes[name].effect}
    assert needed <= set(required)
    assert set(joint.kept) <= there
    assert BOUNDARY in required


@pytest.mark.parametrize("factory", NETWORKS, ids=lambda factory: factory.__name__)
def test_groups_say_what_inductors_order_takes(factory):
    captured = fused(factory)
    operators = emit(captured.joint, captured.members(captured.reference))
    groups = remat.schedule_of(captured.instance(), list(captured.reference)).peak_memory["memory"]
    captured.fusion, fusion = None, captured.fusion
    try:
        alone = remat.solve(captured.instance(), algorithm="keep-all").peak_memory["memory"]
    finally:
        captured.fusion = fusion
    assert groups - sum(fusion.copies.values.values()) < alone, "eager kernels make no copies for convolutions"
    assert any(name in captured.joint.maker for name in operators.saved)
    for order in captured.others():
        assert remat.schedule_of(captured.instance(), order).columns is not None
    runs = [name for name in captured.reference if fusion.groups[name].required]
    assert len(runs) == len(set(runs)), "Inductor's own partition runs no kernel of a library again"


def test_convolutions_read_copies_of_weights_and_images():
    captured = fused(models.conv)
    module, (image, _), _ = models.make(models.conv)
    convolutions = [part for part in module.modules() if isinstance(part, torch.nn.Conv2d)]
    copies = captured.fusion.copies.values
    assert sorted(copies.values()) == sorted([image.nbytes, *(part.weight.nbytes for part in convolutions)])
    assert captured.reference[0] == LAYOUT
    assert captured.members([LAYOUT]) == []
    values = {value["id"]: value["size"] for value in captured.document()["values"]}
    assert copies.items() <= values.items()
    readers = {name: [task.name for task in captured.tasks.values() if name in task.reads] for name in copies}
    assert all(len(names) == 2 for names in readers.values()), readers


def test_a_copy_for_a_convolution_is_made_only_where_the_layout_differs():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Conv2d(4, 8, 1)
            self.two = torch.nn.Conv2d(8, 8, 3, groups=8).to(memory_format=torch.channels_last)
            self.three = torch.nn.Conv1d(6, 4, 3)

        def forward(self, x):
            return self.three(self.two(self.one(x)).flatten(2).transpose(1, 2)[:, :6]).square().mean()

    image = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    captured = fused(lambda: (Net(), (image,), {}))
    assert not captured.fusion.copies.values
    assert LAYOUT not in captured.tasks


def test_the_identity_of_a_partitioner():
    make = remat.torch.Partitioner
    same = make(budget="1GB")
    assert same.uuid() == make(budget="1GB").uuid()
    others = [
        make(budget="2GB"),
        make(),
        make(budget="1GB", reserve="1MB"),
        make(budget="1GB", costs="roofline:H100-bf16"),
        make(budget="1GB", optimizer="adamw"),
    ]
    assert len({same.uuid(), *(other.uuid() for other in others)}) == len(others) + 1
    assert make(budget="1GB", costs="measure").uuid() is None
    again = pickle.loads(pickle.dumps(same))
    assert again.uuid() == same.uuid()
    assert again.choices == same.choices


def test_a_partitioner_in_the_configuration():
    right, _ = plain(models.mlp)
    module, args, kwargs = models.make(models.mlp)
    partitioner = remat.torch.Partitioner(budget="90%", **SOLVER)
    torch._dynamo.reset()
    with torch._inductor.config.patch(custom_partitioner_fn=partitioner, force_disable_caches=True):
        found = step(torch.compile(module, dynamic=False), module, args, kwargs)
    assert len(partitioner.plans) == 1
    for expected, value in zip(right, found, strict=True):
        torch.testing.assert_close(value, expected, rtol=2e-6, atol=1e-7)


class Budgeted:
    """A planner whose plans and codes are made up."""

    choices = remat.torch.Choices(budget=1000)

    def __init__(self, rivals, peaks, most=None, saved=0):
        self.rivals, self.peaks, self.most, self.asked, self.saved = rivals, peaks, most, [], saved

    def attempt(self, compiler, aim, order=None, *, reuse=True):
        self.asked.append(order)
        saved = 0 if reuse else self.saved
        if order is None and self.most is not None and len(self.asked) > self.most:
            raise remat.torch.TooSmallError("nothing found", proved=False)
        runs = ("plan",) if order is None else tuple(order)
        overhead = {rival.runs: rival.overhead for rival in self.rivals} | {("plan",): 0.09}
        split = {"activations": self.peaks[runs] - saved, "reserve": 10}
        plan = remat.torch.Plan("", {}, runs, split, self.peaks[runs] - saved, overhead[runs], "")
        return Attempt(runs, plan, self.peaks[runs] + 80, 1000, True)


def test_orders_of_inductors_own_partitioner_count_by_their_code():
    rivals = [
        Rival(("slower",), 900, 0.1),
        Rival(("large",), 1300, 0.01),
        Rival(("close",), 1035, 0.02),
        Rival(("fits",), 1020, 0.05),
        Rival(("also",), 1010, 0.06),
    ]
    peaks = {("plan",): 980, ("close",): 1000, ("fits",): 980, ("also",): 970}
    planner = Budgeted(rivals, peaks)
    assert compile_plan(None, planner)[1].runs == ("fits",)
    assert planner.asked == [None, ("close",), ("fits",)]
    few = Budgeted(rivals[:3], peaks)
    assert compile_plan(None, few)[1].runs == ("plan",)
    planner = Budgeted(rivals, peaks | {("plan",): 1100})
    assert compile_plan(None, planner)[1].runs == ("fits",), "where no plan fits, too"
    planner = Budgeted(rivals, peaks | {("plan",): 1100}, 1)
    assert compile_plan(None, planner)[1].runs == ("fits",), "where no smaller plan is found, too"
    with pytest.raises(remat.torch.TooSmallError, match="nothing found"):
        compile_plan(None, Budgeted(rivals[:2], {("plan",): 1100, ("slower",): 1200}, 1))


def test_code_above_the_budget_is_compiled_without_reuse_of_buffers_before_a_smaller_plan_is_made():
    planner = Budgeted([], {("plan",): 1100}, saved=120)
    assert compile_plan(None, planner)[1].peak == 980
    assert planner.asked == [None, ("plan",)]
    planner = Budgeted([], {("plan",): 1100}, saved=50)
    with pytest.raises(remat.torch.TooSmallError, match="a larger budget is needed"):
        compile_plan(None, planner)
    assert planner.asked == [None, ("plan",), None, None, None]


def test_a_saved_plan_runs_again(tmp_path):
    call, found = planned(models.mlp, budget="90%")
    path = tmp_path / "plan.json"
    call.plan.save(path)
    second, same = planned(models.mlp, plan=path)
    assert second.plan.runs == call.plan.runs
    assert second.plan.source == str(path)
    assert all(map(torch.equal, found, same))


def test_too_small_a_budget_is_refused():
    with pytest.raises(remat.torch.TooSmallError, match=r"infeasible|no schedule found|larger budget"):
        planned(models.mlp, budget="20kB")


def test_evaluation_needs_no_plan():
    module, args, kwargs = models.make(models.conv)
    call = remat.torch.compile(module, inductor=True, budget="90%")
    with torch.no_grad():
        assert torch.isfinite(call(*args, **kwargs))
    assert call.plan is None


def test_code_of_another_form_is_refused():
    with pytest.raises(remat.torch.TorchError, match="another form"):
        account((Program("x = 1\n"), Program("x = 1\n")), [], [], 0)


def test_the_account_follows_buffers_as_python_frees_them():
    source = """
def call(args):
    x, = args
    args.clear()
    one = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    kernel(x, one)
    two = reinterpret_tensor(one, (8, 4), (4, 1), 0)
    del one
    three = empty_strided_cpu((16, ), (1, ), torch.int64)
    del two
    four = three; del three  # reuse
    extern_kernels.mm(x, x, out=four)
    return (four, )
"""
    early = Program(source)
    late = Program(source.replace("x, = args", "x, y = args"))
    found = account((early, late), [torch.zeros(2)], [torch.zeros(1)], 0, lambda *_: 1000)
    assert found.forward == 128 + 128 + 1000
    assert found.backward == 128 + 4 + 128 + 128 + 1000
    blocks = Program(source.replace("empty_strided_cpu", "empty_strided_cuda"))
    assert account((blocks, late), [torch.zeros(2)], [torch.zeros(1)], 0).forward == 512 + 512
