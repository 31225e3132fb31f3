"""The registry: the available algorithms, as data. Listing them imports no solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, Literal, get_args

from remat.errors import OptionError, checked_call
from remat.messages import brief, listing, nearest
from remat.plugin.entry_points import entry_points

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from remat.plugin.problem import Problem

ENTRY_POINT_GROUP = "remat.algorithms"

Guarantee = Literal["exact", "bounded", "heuristic", "strategy"]
"""`exact`: optimal within its stated class. `bounded`: within a proved factor. `heuristic`: no promise.
`strategy`: builds exactly one schedule for an instance, whatever the budget."""

ANY_KIND = "taskgraph"
KINDS = ("chain", "adjoint", "dag", "tree", "pipeline", "join")
LAYOUT = "layout"
"""Input kind of algorithms that assign addresses to buffers: `remat.plugin.Buffers` instead of an instance."""
ONE_DEVICE_KINDS = frozenset(["chain", "adjoint", "dag", "tree", "join"])
"""Kinds whose tasks can all run on the first processor: any algorithm for task graphs accepts them by lowering."""


PLUG_INS = "plug-ins"
"""Family of algorithms that do not belong to the zoo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The conditions and options with which `auto` runs an algorithm.

    Attributes
    ----------
    when : str
        In words: the instances for which it is worth a try. Empty for all that the algorithm accepts.
    applies : str
        The same as ``"module:function"``, a predicate of a `Problem` that takes negligible time; empty for all.
    kinds : tuple of str
        Only instances of these kinds; empty for all that the algorithm accepts.
    options : mapping
        Options of the algorithm.
    early : bool
        Whether it takes negligible time and often proves its answer: it runs before all others.
    free : bool
        Whether it searches for another order of the tasks; it runs last if the tasks must keep the listed order.
    timed : bool
        Whether it runs only within a time limit that the user has set: it takes long, and may improve the answer.
    uncovered : bool
        Whether it runs even if an algorithm that covers it runs.
    """

    when: str = ""
    applies: str = ""
    kinds: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    early: bool = False
    free: bool = False
    timed: bool = False
    uncovered: bool = False

    def suits(self, problem: Problem) -> bool:
        """Whether the trial is worthwhile for a problem."""
        if self.kinds and problem.kind not in self.kinds:
            return False
        return not self.applies or bool(load(self.applies)(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The metadata of an algorithm, available without importing it.

    Attributes
    ----------
    name : str
        Registry name, such as ``rotor``.
    solver : str
        ``"module:function"``; the function is ``solve(problem, options, context) -> Proposal``.
    kinds : tuple of str
        Instance kinds that it accepts. ``taskgraph`` stands for all kinds that one device can run (through lowering).
        ``layout`` stands for buffers that need addresses; then the algorithm takes `Buffers` instead of a problem.
    summary : str
        One line.
    guarantee : str
        `Guarantee`.
    within : str
        The class of schedules that an exact algorithm searches, or that a strategy belongs to.
    complexity : str
    reference : str
        The publication that it follows: "after ..." if only its idea is reproducible, "-" if there is none.
    deviates : str
        One line: how it differs from its reference. Empty if it is faithful or follows no publication.
    needs_slack : str
        One line: why a budget equal to the peak of its own schedule may give a slower schedule, or none. Empty if that
        budget gives a schedule that is no slower.
    options : str
        ``"module:class"`` of its options (a frozen pydantic model); empty if it has none.
    requires : tuple of str
        Modules that must be importable.
    several_memories : bool
        Whether it uses more than the working memory.
    several_processors : bool
        Whether its schedules and proofs take several simultaneous processors into account. Proofs of other algorithms
        on these machines hold for schedules on one processor. Algorithms for pipelines always support several.
    any_links : bool
        Whether it supports links with a `delay`, and transfers that occupy more than their channel.
    ratios : bool
        Whether it supports values with a compression ratio of their own. Relevant with `several_memories` only.
    devices : bool
        Whether it supports these features of kind `dag`: times by type, tasks tied to processors, inputs that the
        schedule places, and memories with static bytes.
    collectives : bool
        Whether it supports tasks of kind `dag` that run in several memories at once.
    ranks : bool
        Whether it supports chains whose states are sharded over ranks or placed by the schedule.
    open_places : bool
        Whether it supports chains whose states are placed by the schedule, without ranks.
    streams : bool
        Whether it supports work without end, and answers with a period: task graphs and pipelines that run for one
        sample after the other, or chains whose training steps follow each other.
    slices : bool
        Whether it supports pipelines whose sequences are cut into slices.
    divide : str
        ``"module:function"`` that decides how sequences are cut into slices, if a pipeline leaves that open; empty if
        the algorithm does not cut them. The function is ``divide(problem, options) -> Iterable[PipelineInstance]``:
        each instance is solved, and the best answer is taken.
    anytime : bool
        Whether it reports incumbents and can be stopped.
    cheap : tuple of str
        Instance kinds for which it is polynomial and fast enough to run always: `auto` runs it early.
    trials : tuple of Trial
        When, and with which options, `auto` runs it. Default: always, with its default options.
    many : str
        ``"module:function"``, a predicate of a `Problem`: whether `auto` runs it first, as a fast member, for queries
        about many budgets or batches; empty if it never does.
    quick : str
        ``"module:function"`` that returns options, by name, with which the algorithm takes little time for a `Problem`:
        `auto` then also runs it, with these, as a fast member for queries about many budgets; empty if it never does.
    covered_by : tuple of str
        Algorithms that are hardly ever worse, for example because they call it. If `auto` can run one of them, it runs
        this one last: if there is no schedule yet, or if time is left of a limit that the user has set.
    work_limits : tuple of str
        Numeric options that limit its work, whose defaults may end a search that would still improve. While time is
        left, `auto` runs the best of these algorithms again with larger values. Empty if there are none.
    sweep : str
        ``"module:function"`` that answers many budgets at once; empty if each budget is a separate solve. The
        function is ``sweep(problem, options, context, budgets) -> Iterator[Proposal]``: one proposal for each
        budget of a descending tuple; for an empty tuple, one for each breakpoint of the time-memory curve.
    prepare : str
        ``"module:function"`` that prepares for many budgets; empty if preparation saves nothing. The function is
        ``prepare(problem, options) -> Callable[[Problem, Context], Proposal]``. The returned callable answers as
        `solver` does, for problems that differ only in capacities. It may cache results between calls. Two threads
        never call it at the same time.
    stream : str
        ``"module:function"`` that yields a schedule without storing it, for `remat.stream`; empty if there is none.
        The function is ``stream(problem, options, context) -> Iterator[Entry] | Proposal``: the operations of
        `remat.schedule.operations`, from which the steps follow, or the answer if the budget is too small. If the steps
        are equal, it must not use ``problem.chain`` or ``problem.graph``: they are as long as the adjoint.
    online : str
        ``"module:class"`` that makes the decisions for an adjoint with an unknown number of steps, for
        `remat.time_loops.OnlineSchedule`; empty if there is none.
    """

    name: str
    solver: str
    kinds: tuple[str, ...]
    summary: str
    guarantee: Guarantee
    within: str = ""
    complexity: str = ""
    reference: str = ""
    deviates: str = ""
    needs_slack: str = ""
    options: str = ""
    requires: tuple[str, ...] = ()
    several_memories: bool = False
    several_processors: bool = False
    any_links: bool = False
    ratios: bool = False
    devices: bool = False
    collectives: bool = False
    ranks: bool = False
    open_places: bool = False
    streams: bool = False
    slices: bool = False
    divide: str = ""
    anytime: bool = False
    cheap: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = (Trial(),)
    many: str = ""
    quick: str = ""
    covered_by: tuple[str, ...] = ()
    work_limits: tuple[str, ...] = ()
    sweep: str = ""
    prepare: str = ""
    stream: str = ""
    online: str = ""

    @property
    def promise(self) -> str:
        """The guarantee and its class, in words."""
        if self.guarantee == "exact":
            return f"exact: optimal among {self.within}"
        if self.guarantee == "strategy":
            return f"strategy: one {LAYOUT if self.kinds == (LAYOUT,) else 'schedule'}, {self.within}"
        if self.guarantee == "bounded":
            return "bounded: within a proved factor of the optimum"
        return "heuristic" + (f": proves at most that no schedule exists among {self.within}" if self.within else "")

    @property
    def parallel(self) -> bool:
        """Whether its schedules take several simultaneous processors into account."""
        return self.several_processors or self.kinds == ("pipeline",)

    @property
    def package(self) -> str:
        """The importable package that contains its solver."""
        return self.solver.partition(":")[0].partition(".")[0]

    def accepts(self, kind: str) -> bool:
        """Whether the algorithm accepts instances of this kind."""
        return kind in self.kinds or (ANY_KIND in self.kinds and kind in ONE_DEVICE_KINDS)

    def is_available(self) -> bool:
        """Whether its required modules are installed (without importing them)."""
        return not self.missing()

    @property
    def family(self) -> str:
        """The algorithm's folder in the zoo; `PLUG_INS` for all others."""
        package, *inner = self.solver.partition(":")[0].split(".")
        return inner[0] if package == "remat_algorithms" and inner else PLUG_INS

    def missing(self) -> tuple[str, ...]:
        """Return the required modules that are not installed."""
        return tuple(module for module in self.requires if not _is_installed(module))

    def load(self) -> Callable[..., Any]:
        """Import and return the solver function."""
        solver: Callable[..., Any] = load(self.solver)
        return solver

    def load_sweep(self) -> Callable[..., Any] | None:
        """Import and return the function that answers many budgets at once, or None."""
        return load(self.sweep) if self.sweep else None

    def load_prepare(self) -> Callable[..., Any] | None:
        """Import and return the function that prepares for many budgets, or None."""
        return load(self.prepare) if self.prepare else None

    def load_divide(self) -> Callable[..., Any] | None:
        """Import and return the function that decides how sequences are cut, or None."""
        return load(self.divide) if self.divide else None

    def load_stream(self) -> Callable[..., Any] | None:
        """Import and return the function that yields steps lazily, or None."""
        return load(self.stream) if self.stream else None

    def load_online(self) -> Callable[..., Any] | None:
        """Import and return the class that makes online decisions, or None."""
        return load(self.online) if self.online else None

    def load_options(self) -> type[Any] | None:
        """Import and return the options model, or None."""
        return load(self.options) if self.options else None


def _is_installed(module: str) -> bool:
    return util.find_spec(module) is not None


def load(reference: str) -> Any:
    """Import the object that ``"module:name"`` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


@cache
def _registered() -> dict[str, Algorithm]:
    found: dict[str, Algorithm] = {}
    # The built-in zoo first, so that a plug-in cannot take one of its names.
    points = sorted(entry_points(ENTRY_POINT_GROUP), key=lambda point: (point.name != "builtin", point.name))
    for point in points:
        try:
            listed: Any = point.load()
            entries: Any = listed() if callable(listed) else listed
            for algorithm in entries:
                if fault := fault_of(algorithm):
                    _warn(f"plug-in {point.name} ({point.value}): {fault}")
                else:
                    found.setdefault(algorithm.name, algorithm)
        except (Exception, SystemExit) as error:  # a broken plug-in must not take the others down
            _warn(f"plug-in {point.name} ({point.value}) cannot be loaded: {error}")
    return found


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, stacklevel=4)


def fault_of(entry: Any) -> str:
    """Return what is wrong with the metadata of an algorithm, and the remedy; empty if nothing is."""
    if not isinstance(entry, Algorithm):
        return f"{brief(entry)} is not a remat.plugin.Algorithm; list the algorithms as such"
    known: tuple[str, ...] = (*KINDS, ANY_KIND, LAYOUT)
    name = repr(entry.name)
    kinds: Any = entry.kinds
    if not isinstance(kinds, (tuple, list)) or not kinds:
        return f"algorithm {name} has kinds={kinds!r}; write a tuple, such as kinds=({KINDS[0]!r},)"
    for kind in kinds:
        if kind not in known:
            near = nearest(str(kind), known)
            hint = f"did you mean {near!r}?" if near else f"the kinds are {', '.join(known)}"
            return f"algorithm {name} is for the kind {brief(kind)}, which is unknown; {hint}"
    if entry.guarantee not in get_args(Guarantee):
        listed = ", ".join(get_args(Guarantee))
        return f"algorithm {name} has guarantee={brief(entry.guarantee)}; write one of {listed}"
    return ""


def distribution_of(package: str) -> Distribution | None:
    """Return the installed distribution of an importable package of algorithms; None if it is unknown."""
    from importlib import metadata

    # Usually the entry point has this distribution; searching the files of all packages takes up to a second.
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if point.module.partition(".")[0] == package and point.dist is not None:
            return point.dist
    for name in metadata.packages_distributions().get(package, [package]):
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def refresh() -> None:
    """Discard the cached registry (after installing a plug-in into the running process)."""
    _registered.cache_clear()


@checked_call(OptionError)
def algorithms(kind: str | None = None, *, available: bool = False) -> tuple[Algorithm, ...]:
    """List the registered algorithms, by name.

    Parameters
    ----------
    kind : str, optional
        Only those that accept instances of this kind.
    available : bool
        Only those whose required modules are installed.

    Returns
    -------
    tuple of Algorithm

    Raises
    ------
    remat.OptionError
        If the kind is unknown.

    Examples
    --------
    >>> import remat
    >>> "rotor" in {algorithm.name for algorithm in remat.algorithms("chain")}
    True
    """
    if kind is not None and kind not in (*KINDS, LAYOUT):
        raise OptionError(f"unknown kind {kind!r}; it is one of {', '.join(KINDS)}")
    chosen: Iterable[Algorithm] = [a for a in _registered().values() if kind is None or a.accepts(kind)]
    if available:
        wanted = {module for algorithm in chosen for module in algorithm.requires}
        installed = {module for module in wanted if _is_installed(module)}
        chosen = [algorithm for algorithm in chosen if installed.issuperset(algorithm.requires)]
    return tuple(sorted(chosen, key=lambda algorithm: algorithm.name))


def name_of(algorithm: str | Algorithm) -> str:
    """Return the name of an algorithm that is given by name or as an object."""
    return algorithm.name if isinstance(algorithm, Algorithm) else algorithm


def find(given: str | Algorithm, kind: str) -> Algorithm:
    """Return an algorithm, by name or as an object, checked for this kind of instance.

    Raises
    ------
    OptionError
        If the name is unknown (with a suggestion), the metadata of an object are wrong, the kind is not accepted, or a
        package is missing.
    """
    algorithm = _checked(given) if isinstance(given, Algorithm) else _named(given, kind)
    name = algorithm.name
    if not algorithm.accepts(kind):
        raise OptionError(
            f"{name!r} solves {', '.join(algorithm.kinds)}, not {kind}; {_instead(name, kind)}",
            argument="algorithm",
        )
    if missing := algorithm.missing():
        raise OptionError(f"{name!r} needs {', '.join(missing)}, which is not installed", argument="algorithm")
    return algorithm


def _checked(algorithm: Algorithm) -> Algorithm:
    fault, name = fault_of(algorithm), algorithm.name
    if not fault and name in ("", "auto"):
        fault = f"{name!r} is not a name of an algorithm; choose another"
    if fault:
        raise OptionError(fault, argument="algorithm")
    return algorithm


def _named(name: str, kind: str) -> Algorithm:
    known = _registered()
    if name in known:
        return known[name]
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else f"; known for {kind}: {_names(algorithms(kind))}"
    raise OptionError(f"unknown algorithm {brief(name)}{hint}", argument="algorithm")


def _instead(name: str, kind: str) -> str:
    """Suggest algorithms for a kind whose names are alike; otherwise list all, the strongest ones first."""
    listed = algorithms(kind)
    parts = {name, *name.split("-")} - {kind}
    near = [one.name for one in listed if name in one.name]
    near = near or [one.name for one in listed if parts & set(one.name.split("-"))]
    if not near and (slip := nearest(name, [one.name for one in listed])):
        near = [slip]
    if near:
        return f"did you mean {listing(map(repr, sorted(near, key=lambda one: (len(one), one))))}?"
    return f"use one of {_names(sorted(listed, key=lambda one: (bool(one.covered_by), one.guarantee != 'exact')))}"


def _names(listed: Sequence[Algorithm]) -> str:
    return listing(algorithm.name for algorithm in listed)
