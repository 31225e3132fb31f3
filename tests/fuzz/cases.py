"""Cases: an instance with the solves whose answers are compared, drawn from a seed or read from a file."""

import copy
from dataclasses import dataclass, field, replace

import remat
from remat.plugin import registry
from tests.fuzz import forms
from tests.fuzz.budgets import draw_budget, plain
from tests.fuzz.kinds.figures import Draw
from tests.fuzz.kinds.machines import of_devices
from tests.fuzz.options import WORK, draw_options
from tests.fuzz.transformations import expanded

ODDS_TO_SKIP = 10
"""An algorithm that an instance is drawn for is left out once in so many cases."""

ODDS_OF_OTHERS = 4
"""Period, in cases, with which another algorithm that accepts the instance runs."""

AUTO, AUTO_SECONDS = ("auto", "dag-auto"), 5.0
"""Algorithms that always get a time limit; answers that reach it are not repeated."""

LARGE, MOST_OF_LARGE, SHORT = 100, 5, (0.3, 1.0, 1.0, 2.0)
"""Number of tasks of a large instance, number of algorithms that solve it, and their time limits."""


@dataclass(frozen=True)
class Solve:
    """The request to one algorithm; `machine` replaces the one of the instance."""

    algorithm: str
    budget: object = None
    options: dict = field(default_factory=dict)
    seed: int = 0
    twice: bool = False
    time_limit: float | None = None
    machine: dict | None = None

    def arguments(self):
        """Return keyword arguments of `remat.solve`."""
        chosen = {"algorithm": self.algorithm, "budget": self.budget, "options": self.options, "seed": self.seed}
        chosen |= {} if self.time_limit is None else {"time_limit": self.time_limit}
        return chosen | ({} if self.machine is None else {"machine": copy.deepcopy(self.machine)})


@dataclass(frozen=True)
class Case:
    """An instance, and the solves whose answers must agree."""

    seed: int
    document: dict
    solves: tuple = ()
    form: str = ""

    def instance_of(self, solve):
        """Return the document that the second referee reads: with defaults, and the machine of a solve."""
        return plain(self.document) | ({} if solve.machine is None else {"machine": solve.machine})

    def only(self, algorithms):
        """Return the case with the solves of these algorithms."""
        return replace(self, solves=tuple(solve for solve in self.solves if solve.algorithm in algorithms))


def draw_case(seed, form=None, among=()):
    """Draw the case of a seed, of a given form if there is one; `among` are the only algorithms to ask, if any."""
    if form is None and among and "auto" not in among:
        # Only forms that these algorithms accept: rare algorithms are asked as often as others.
        form = Draw(f"{seed}/form").pick(forms_for(among))
    for attempt in range(100):
        drawn, drawn_form = forms.document(f"{seed}/{attempt}", form)
        try:
            remat.load(copy.deepcopy(drawn))
        except remat.InstanceError:
            continue  # a graph in which some task can never run, sizes beyond 2^62
        case = Case(seed, drawn, form=drawn_form)
        machine = _machine(Draw(f"{seed}/machine"), drawn)
        solves = (replace(solve, machine=machine) for solve in _solves(Draw(f"{seed}/solves"), case, set(among)))
        return replace(case, solves=tuple(solves))
    raise RuntimeError(f"seed {seed}: a hundred instances, and none can be read")


def _machine(draw, drawn):
    """Draw a machine that replaces the cluster of a pipeline, in half of the cases."""
    if drawn["kind"] != "pipeline" or draw.chance(2):
        return None
    entries = drawn["cluster"]["devices"]
    devices = [(name, entry.get("type", entry["name"])) for entry in entries for name in expanded(entry)]
    return of_devices(draw, devices)


def forms_for(algorithms):
    """Return the forms that are drawn for one of some algorithms, or that one of them accepts."""
    own = [form for form, names in forms.DRAWN_FOR.items() if set(names) & set(algorithms)]
    if own:
        return own
    entries = [entry for entry in registry.algorithms() if entry.name in algorithms]
    return [form for form, (*_, kind, _, _) in forms.FORMS.items() if kind and any(e.accepts(kind) for e in entries)]


def _solves(draw, case, among):
    drawn = case.document
    budgets = [draw_budget(draw, drawn) for _ in range(draw.pick([1, 1, 2]))]
    entries = [e for e in registry.algorithms(drawn["kind"], available=True) if not among or e.name in among]
    auto = not among or "auto" in among
    if is_large(drawn):
        limit = draw.pick(SHORT)
        for entry in draw.random.sample(entries, min(len(entries), MOST_OF_LARGE)):
            yield Solve(entry.name, budgets[0], {}, 0, time_limit=limit)
        if auto:
            yield Solve("auto", budgets[0], {}, 0, time_limit=limit)
        return
    own = forms.DRAWN_FOR.get(case.form, ())
    for budget in budgets:
        for entry in entries:
            if draw.chance(ODDS_TO_SKIP) if entry.name in own or among else not draw.chance(ODDS_OF_OTHERS):
                continue
            options = WORK.get(entry.name, {}) | (draw_options(draw, entry) if draw.chance(3) else {})
            limit = AUTO_SECONDS if entry.name in AUTO else draw.pick([None, None, None, 0.2, 3.0])
            yield Solve(entry.name, budget, options, draw.whole(0, 3), draw.chance(25), limit)
        if auto and draw.chance(2):
            yield Solve("auto", budget, {}, 0, draw.chance(25), AUTO_SECONDS)


def is_large(drawn):
    """Whether an instance has at least `LARGE` stages, steps, tasks, nodes or runs of layers."""
    steps = drawn.get("steps", 0)
    layers = sum(layer.get("repeat", 1) for layer in drawn.get("layers", ()))
    counts = (
        sum(stage.get("repeat", 1) for stage in drawn.get("stages", ())),
        steps if isinstance(steps, int) else len(steps),
        *(len(drawn.get(key, ())) for key in ("tasks", "parent")),
        layers * drawn.get("micro_batches", 0),
    )
    return max(counts) >= LARGE


def named_budget(document, memory, size):
    """Return the budget that an answer names for one memory: that of a device of a pipeline is for every device."""
    return size if document["kind"] == "pipeline" and memory != "host" else {memory: size}
