"""`remat fit torch MODULE:FACTORY`, and `remat export --as table`: the printed plan is the plan that runs."""

import copy
import re

import pytest
import torch

import remat.torch
from remat.bridges.torch.fitting import largest, short_names
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.planning import make_plan
from remat.cli.main import main
from tests.torch.studies import WORK

SOURCE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.weight_of_rows = torch.ones(1)
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * self.weight_of_rows
        return x.square().mean()
def make(batch=256):
    torch.manual_seed(0)
    return Net(), (torch.randn(batch, 16),)
def other(batch=64):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0), nn.MSELoss()), None
def loss(batch=64):
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
        def forward(self, *, x):
            return self.net(x).square().mean()
    torch.manual_seed(1)
    return Loss(), (), {"x": torch.randn(batch, 8)}
def plain(): return make()
def vector(): return nn.Linear(8, 32), (torch.randn(4, 8),)
def several():
    class Several(nn.Linear):
        def forward(self, x): return super().forward(x).split(2, 1)
    return Several(3, 8), (torch.randn(4, 3),)
class Wrapper(torch.nn.Module):
    def __init__(self, net): super().__init__(); self.net = net
    def forward(self, x, y): return torch.nn.functional.cross_entropy(self.net(x), y)
def wrapped(): return Wrapper(nn.Linear(8, 32)), (torch.randn(4, 8), torch.randint(32, (4,)))
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / f"fit_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(SOURCE)
    return path


def test_the_largest_by_doubling_and_bisection():
    for most in (1, 2, 7, 8, 100):
        for limit in range(most + 3):
            tried = []

            def fits(batch, limit=limit, tried=tried):
                tried.append(batch)
                return batch <= limit

            assert largest(fits, most) == min(limit, most)
            assert len(tried) == len(set(tried)) <= 14
            assert all(1 <= batch <= most for batch in tried)


def test_names_of_modules_are_short_where_one_is_long():
    long = "base_model.model.model.layers.10.self_attn.q_proj.lora_A.default"
    assert short_names(["h.0", "", "h.1"]) == ("", ["h.0", "(no module)", "h.1"])
    assert short_names([long, long.replace("10", "9")])[0] == "base_model.model.model.layers"
    assert short_names([long]) == (long.removesuffix(".default"), ["default"])
    assert short_names([long, "base_model.model", ""]) == (
        "base_model.model", [long.removeprefix("base_model.model."), "(itself)", "(no module)"],
    )  # fmt: skip
    assert short_names([long, "head"]) == ("", [long, "head"])


@pytest.mark.parametrize(("factory", "share"), [("make", 0.6), ("loss", 0.9)])
def test_the_printed_lines_train_within_the_budget(source, tmp_path, capsys, factory, share):
    whole = remat.torch.fit(f"{source}:{factory}", remat.torch.Choices()).plan
    budget, output = int(whole.peak * share), str(tmp_path / "plan.json")
    options = ["--budget", str(budget), "--optimizer", "sgd"]
    assert main(["fit", "torch", f"{source}:{factory}", *options, "-o", output]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^Peak +", said, re.M)
    assert "in reserve" not in said
    assert re.search(r"^Recomputed +[1-9]", said, re.M)
    lines = "\n".join(line.strip() for line in said.splitlines()[-2:])
    assert output in lines
    model, args, kwargs = remat.torch.call_factory(f"{source}:{factory}")
    plain = copy.deepcopy(model)
    plain(*args, **kwargs).backward()
    known = {"model": model}
    exec(lines, known)  # what a reader would paste
    planned = known["model"]
    planned(*args, **kwargs).backward()  # compiles
    assert planned.plan.source == output
    planned.zero_grad()
    given = [*model.parameters(), *args, *kwargs.values()]
    with LiveStorages(given) as live:
        planned(*args, **kwargs).backward()
    fixed = planned.plan.peak - planned.plan.split["activations"] - planned.plan.split["gradients"]
    assert live.peak + fixed <= budget + 64
    for (name, one), (_, two) in zip(plain.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(one.grad, two.grad), name
    capsys.readouterr()
    step = str(tmp_path / "step.json")
    assert main(["import", "torch", f"{source}:{factory}", "--optimizer", "sgd", "-o", step]) == 0
    assert main(["export", output, "--of", step, "--as", "table"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:5] == ["run", "start", "task", "phase", "module"]
    assert len(rows) - 1 == len(planned.plan.runs)
    assert any("aten.addmm" in row and ".py:" in row for row in rows)
    assert any(row.startswith("2 ") for row in rows)


@pytest.mark.parametrize(
    "at_host", [pytest.param((), marks=pytest.mark.slow), ("--optimizer-memory", "host")], ids=["activations", "states"]
)
def test_the_printed_lines_use_the_host(source, tmp_path, capsys, at_host):
    """With a host, a smaller budget is enough, and the printed lines make a plan that runs."""
    name = f"{source}:make"
    asked = ["fit", "torch", name, "--time-limit", "1s", "--optimizer", "adamw"]
    whole = remat.torch.fit(name, remat.torch.Choices(optimizer="adamw")).plan
    budget = str(whole.whole_peak * 9 // 10)
    hosted = [*asked, "--budget", budget, "--host", "1GB", "--link", "1GB/s", *at_host]
    assert main([*hosted, "-o", str(tmp_path / "plan.json")]) == 2
    assert "a plan with --host cannot be loaded from a file" in capsys.readouterr().err
    assert main(hosted) == 0
    said = capsys.readouterr().out
    assert "host='1GB', link='1GB/s'" in said
    assert ("optimizer_memory='host'" in said) == bool(at_host)
    assert said.startswith("Step time ") == bool(at_host)
    assert "offload nothing" not in said
    assert re.search(r"^Decisions .* to the host", said, re.M)
    assert re.search(r"^Overhead .* for recomputation and waits for copies, over the ", said, re.M)
    model, args, kwargs = remat.torch.call_factory(name)
    known = {"model": model}
    exec("\n".join(line.strip() for line in said.splitlines()[-2:]), known)  # what a reader would paste
    optimizer = remat.torch.host_optimizer(known["model"], torch.optim.AdamW, lr=1e-3) if at_host else None
    known["model"](*args, **kwargs).backward()
    if optimizer is not None:
        optimizer.step()
    assert known["model"].plan.peak <= int(budget)


def test_the_largest_batch_within_a_budget(source, capsys):
    name = f"{source}:make"
    whole = remat.torch.fit(name, remat.torch.Choices()).plan
    assert main(["fit", "torch", name, "--budget", str(whole.peak), "--costs", "measure", "--max-batch", "2"]) == 0
    assert "costs='measure'" in capsys.readouterr().out
    assert main(["fit", "torch", name, "--budget", str(whole.peak), "--max-batch", "300", "-v"]) == 0
    captured = capsys.readouterr()
    found = int(re.search(r"^Batch +(\d+) is", captured.out, re.M)[1])
    assert 256 <= found <= 300
    assert "batch 1 fits" in captured.err
    assert f"budget='{whole.peak}'" in captured.out


def test_how_much_longer_it_may_take(source, capsys):
    """The largest batch may recompute much: a limit leaves a smaller one, whose recomputation keeps to it."""
    name = f"{source}:make"
    least, most_bytes = (remat.torch.fit(name, remat.torch.Choices(), max_batch=n).plan.peak for n in (8, 16))
    asked = ["fit", "torch", name, "--budget", str((least + most_bytes) // 2), "--max-batch", "16"]
    found = {}
    for most in ("500%", "0"):
        assert main([*asked, "--max-overhead", most]) == 0
        said = capsys.readouterr().out
        overhead = float(re.search(r"^Overhead +([\d.]+)%", said, re.M)[1])
        assert overhead <= float(most.rstrip("%"))
        found[most] = int(
            re.search(r"^Batch +(\d+) is the largest that fits, .* at most (500|0) % more", said, re.M)[1]
        )
    assert found["500%"] > found["0"] >= 8
    assert main(["fit", "torch", name, "--budget", "90kB", "--max-overhead", "0", "--time-limit", "2s"]) == 4
    assert "it fits, but its overhead is" in capsys.readouterr().err
    assert main([*asked, "--max-overhead", "much"]) == 2
    assert "'much' is not a share" in capsys.readouterr().err


def test_what_does_not_fit(source, capsys):
    for more in ((), ("--max-batch", "8")):
        given = ["--budget", "5kB", "-a", "dag-auto", "--time-limit", "3s"]
        assert main(["fit", "torch", f"{source}:make", *given, *more]) == 3
        said = capsys.readouterr().err
        assert re.fullmatch(
            r"Error: infeasible within 5kB, proved over all schedules(, as for all below .*)?: "
            r"the (smallest budget found is|minimum budget is proved to be) .*, set by aten\.\S+ \(layers\.\d\S*\); "
            r"recomputation does not reduce 6\.\S+ kB weights, 6\.\S+ kB new gradients"
            # With one sample, inputs are less than a hundredth, and gradients dominate.
            + (r"\nNote: gradients of parameters take 6\.\S+ kB, .*\n" if more else r", .* the like\n"),
            said,
        )
        assert main(["fit", "torch", f"{source}:make", *given, "--optimizer", "adam", *more]) == 3
        assert re.fullmatch(
            r"Error: infeasible within 5kB, proved over all schedules: "
            r"optimizer\.step\(\) of adam-loop takes [24]\d\.\S+ kB "
            r"\(\S+ KiB\); recomputation does not reduce this; the largest parts are 1[3-7]\S* kB [^;]*; "
            r"adam-fused takes \S+ kB and does not fit either\n",
            capsys.readouterr().err,
        )
    assert main(["fit", "torch", f"{source}:make", "--budget", "5kB", "--reserve", "6kB"]) == 3
    assert "is all reserve" in capsys.readouterr().err


def test_gradients_that_dominate_are_named_with_what_reduces_them(source, capsys):
    """With 2 samples, each of the 6 matrices is larger than all activations; with 256, it is not."""
    factory = f"{source}:make"
    few = remat.torch.capture_factory(factory, batch=2)
    plan = make_plan(few, remat.torch.Choices())
    (note,) = (line for line in plan.summary.splitlines() if line.startswith("gradients of parameters take 6."))
    assert "recomputation and smaller batches do not reduce them" in note
    assert f"{6 * (16 * 16 + 16) * 4 / plan.peak:.0%} of the peak" in note
    choices = remat.torch.Choices(budget="70%", algorithm="dag-auto", options=WORK, time_limit=3)
    with pytest.raises(
        remat.torch.TooSmallError, match=r"does not reduce 6\.\S+ \w+ weights, 6\.\S+ \w+ new g"
    ) as caught:
        make_plan(few, choices)
    (of_error,) = caught.value.__notes__
    assert of_error.partition(",")[0] == note.partition(",")[0]
    many = remat.torch.capture_factory(factory)
    assert "gradients of parameters" not in make_plan(many, remat.torch.Choices()).summary
    assert main(["fit", "torch", factory, "--budget", "1MB"]) == 0
    said = capsys.readouterr().out
    assert "activations at the peak" in said
    assert "gradients of parameters" not in said


def test_what_is_proved_of_a_budget_and_what_is_not(source, capsys):
    """Said up to which budget none does: less than the least that is found, and all of it is what is proved."""
    captured = remat.torch.capture_factory(f"{source}:make")
    refused = {}
    for budget in (5000, "5%"):
        with pytest.raises(remat.torch.TooSmallError) as caught:
            make_plan(captured, remat.torch.Choices(budget=budget, algorithm="dag-auto", options=WORK))
        assert caught.value.proved
        refused[budget] = str(caught.value)
        size = r" \([\d.]+ \w+\)" if budget == "5%" else ""
        assert re.match(rf"infeasible within {budget}{size}, proved over all schedules", refused[budget])
    with pytest.raises(remat.torch.TooSmallError, match=r"\Ainfeasible within 5000, proved over all schedules\Z"):
        make_plan(captured, remat.torch.Choices(budget=5000), search=False)
    found = re.search(r"the (?:smallest budget found is|minimum budget is proved to be) ([\d.]+) kB", refused[5000])[1]
    below = re.search(r"as for all below ([\d.]+) kB", refused[5000])
    assert below is None or 5 < float(below[1]) <= float(found)
    greedy = remat.torch.Choices(budget=int(float(found) * 1010), algorithm="chen-sqrt")
    with pytest.raises(
        remat.torch.TooSmallError, match=r"\Ano schedule found within \d+: the smallest budget found is"
    ) as caught:
        make_plan(captured, greedy)
    assert not caught.value.proved


def test_a_least_budget_is_proved_where_no_schedule_does_with_less():
    from remat.bridges.torch.planning import make_plan

    class Waves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))

        def forward(self, x):
            return (self.weight * x).sin().exp().sum()

    captured = remat.torch.capture(Waves(), torch.randn(64))
    with pytest.raises(remat.torch.TooSmallError, match=r"is proved to be 1\.284 kB") as caught:
        make_plan(captured, remat.torch.Choices(budget=1283))
    assert "as for all" not in str(caught.value)
    assert make_plan(captured, remat.torch.Choices(budget=1284)).peak == 1284


def test_the_least_budget_that_is_named_does(source):
    """And what is below the budget that was found is no reason to be refused."""
    from remat.bridges.torch.planning import make_plan

    captured = remat.torch.capture_factory(f"{source}:make")
    static = sum(captured.static_bytes().values())
    work = {"algorithm": "dag-auto", "options": WORK}
    with pytest.raises(remat.torch.TooSmallError) as caught:
        make_plan(captured, remat.torch.Choices(budget=static, **work))
    said = re.search(r"is ([\d.]+) kB", str(caught.value))[1]
    top = make_plan(captured, remat.torch.Choices()).peak
    budget = int(float(said) * 1000 * 1.001)
    assert budget < 0.8 * top
    assert make_plan(captured, remat.torch.Choices(budget=budget, **work)).peak <= budget


def test_factories_that_do_not_do(source, capsys):
    assert main(["fit", "torch", f"{source}:plain", "--budget", "1GB", "--max-batch", "8", "-v"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "Error: " in said
    assert "raised TypeError: plain() got an unexpected keyword argument 'batch'" in said
    assert main(["fit", "torch", f"{source}:vector", "--budget", "1GB"]) == 2
    said = f"{source}:vector makes a module that returns float32 [4, 32], not one floating-point number; wrap it"
    assert f"Error: the loss is not a scalar: {said}" in capsys.readouterr().err
    assert main(["import", "torch", f"{source}:several"]) == 2
    said = capsys.readouterr().err
    assert "returns float32 [4, 2], float32 [4, 2], float32 [4, 2] and 1 more, not one" in said
    assert main(["fit", "torch", f"{source}:wrapped", "--budget", "1GB"]) == 0
    assert main(["fit", "torch", f"{source}:other", "--budget", "1GB"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "not (module, args)" in said


def test_the_smallest_budget_includes_the_optimizer_step(tmp_path, capsys):
    """Where few activations meet many states, a budget for forward and backward alone would be refused by `compile`."""
    (tmp_path / "wide.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(6))\n"
        "    def forward(self, x):\n"
        "        for layer in self.layers:\n"
        "            x = x + torch.nn.functional.gelu(layer(x))\n"
        "        return x.square().mean()\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return Net(), (torch.randn(32, 64),)\n"
    )
    name = f"{tmp_path / 'wide.py'}:make"
    asked = ["fit", "torch", name, "-a", "dag-auto", "--time-limit", "3s", "--optimizer", "adamw"]
    assert main([*asked, "--budget", "50%"]) in (3, 4)
    said = capsys.readouterr().err
    named = re.search(r"minimum budget is proved to be \S+ \S+ \((\S+) KiB\), set by optimizer\.step\(\)", said)
    assert named is not None, said
    enough = int(float(named[1].replace(",", "")) * 1024) + 1024
    assert main([*asked, "--budget", str(enough)]) == 0
