"""`remat.compare`: instances x algorithms x budgets x seeds, in worker processes, recorded in a journal."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from remat.comparing.cells import FAILED, Answer, Cell, Job, Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.executors import Executor, Reply, open_executor
from remat.comparing.journal import Journal
from remat.comparing.plan import Described, Request, Source, find_sources, jobs_of, unreadable
from remat.comparing.supervision import Limits
from remat.documents import write_text
from remat.errors import OptionError, RematError, checked_call
from remat.instance import MachineModel
from remat.messages import brief, nearest
from remat.plugin.labels import RESERVED, read_label
from remat.plugin.registry import Algorithm
from remat.solving.problem_setup import read_seconds, read_share
from remat.solving.relative_budget import plain_budget, share_of
from remat.units import parse_budget

if TYPE_CHECKING:
    from remat.instance import Instance

JOURNAL = "journal.jsonl"
"""Name of the journal in the output folder."""

PAGES = "schedules"
"""Name of the folder of pages in the output folder."""

MOST_PAGES = 200
"""Maximum number of cells for which each schedule gets its page by default: 50 kB or more each."""

SECONDS = 10.0
"""Time limit of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Progress of a comparison.

    Attributes
    ----------
    phase : str
        ``reading`` the instances, or ``solving``.
    total : int
        Number of items in this phase, without those in the journal.
    done : int
    known : int
        Number of cells that the journal contained.
    most_seconds : float
        Maximum remaining time: every job runs to its time limit.
    last : Cell or None
        The latest answered cell.
    """

    phase: str
    total: int
    done: int
    known: int = 0
    most_seconds: float = 0.0
    last: Cell | None = None


Listener = Callable[[Tally], None]


@checked_call(OptionError)
def compare(
    instances: str | os.PathLike[str] | Instance | Mapping[str, Any] | Iterable[Any],
    *,
    algorithms: str | Sequence[str] = "auto",
    budgets: Sequence[float | str] = (),
    budget_fractions: Sequence[float] = (),
    seeds: Sequence[int] = (0,),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    machine: Mapping[str, Any] | MachineModel | None = None,
    time_limit: float | str = SECONDS,
    gap: float | str | None = None,
    patience: float | str | None = None,
    memory_limit: int | str | None = None,
    jobs: int | None = None,
    threads: int = 1,
    output: str | os.PathLike[str] | None = None,
    rerun: Literal["failed", "all"] | None = None,
    executor: str | Any = None,
    pictures: bool = False,
    pages: bool | None = False,
    baseline: str | None = None,
    progress: Listener | None = None,
) -> Comparison:
    """Solve every instance with every algorithm at every budget, in worker processes.

    Parameters
    ----------
    instances : path, instance, document or a sequence of them
        Folders are searched for ``.json`` and ``.json.gz``; ``example:NAME`` is a shipped instance, ``examples`` all.
    algorithms : str or sequence of str
        Registry names, ``auto``, or ``all`` that accept the kind; ``LABEL=NAME`` for a second set of options.
    budgets : sequence of int, float or str
        As for `remat.solve`: sizes of the working memory (of the fastest storage level), or shares such as ``"80%"``.
    budget_fractions : sequence of float
        Shares of the peak without recomputation. Without budgets and fractions, the instances' own machines apply.
    options : mapping of algorithm (or label) to options
    machine : mapping or MachineModel, optional
        Replaces the instances' machines.
    time_limit, gap, patience, threads : float, str or int
        For each job, as for `remat.solve`; a worker that exceeds the limit by half (at least 5 s) is killed.
    memory_limit : int or str, optional
        Bytes that a worker may use; default: 90 % of the computer's memory, divided among the workers.
    seeds : sequence of int
    jobs : int, optional
        Number of simultaneous workers; default: one for each core.
    output, rerun : path, {"failed", "all"}, optional
        Folder of the journal, and which of its recorded answers are computed again; none by default.
    executor : str, or a cluster or client of dask, optional
        ``dask://HOST:PORT``, or an object, which is not closed.
    pictures : bool
        Keep a small picture of each schedule for the HTML report: 0.4 to 3 kB per cell.
    pages : bool, optional
        Write interactive pages of schedules into the output; None: only for up to `MOST_PAGES` cells.
    baseline : str, optional
        The algorithm that ratios are relative to; default: the best one.
    progress : callable, optional
        Receives a `Tally` after each job.

    Returns
    -------
    Comparison
        After Ctrl-C: the cells so far, with `interrupted`.

    Raises
    ------
    remat.OptionError, remat.RematError
        For unusable arguments, or a journal that cannot be written; all other errors are cells.
    """
    request = _request(
        algorithms, budgets, budget_fractions, seeds, options, machine, (time_limit, gap, patience), threads
    )
    workers = _workers(jobs, request, baseline)
    limits = Limits(seconds=request.time_limit, memory=_memory(memory_limit, workers))
    with ExitStack() as stack:
        sources = _sources(instances, stack)
        journal = None if output is None else stack.enter_context(_journal(output))
        running = stack.enter_context(open_executor(executor, jobs=workers, limits=limits))
        kept = _Kept(pictures, None if output is None or pages is False else Path(output) / PAGES, pages)
        run = _Run(request, running, journal, rerun, workers, kept, progress or (lambda tally: None))
        return replace(run.all(sources), baseline=baseline or "")


def _workers(jobs: int | None, request: Request, baseline: str | None) -> int:
    """Return the number of workers; reject an invalid number or baseline."""
    if baseline is not None and request.algorithms and baseline not in request.algorithms:
        raise OptionError(f"{baseline!r} is not among the algorithms", argument="baseline")
    workers = jobs if jobs is not None else (os.cpu_count() or 1)
    if workers < 1:
        raise OptionError(f"expected a whole number >= 1, not {workers}", argument="jobs")
    return workers


def _request(
    algorithms: str | Sequence[str],
    budgets: Sequence[float | str],
    fractions: Sequence[float],
    seeds: Sequence[int],
    options: Mapping[str, Mapping[str, Any]] | None,
    machine: Mapping[str, Any] | MachineModel | None,
    limits: tuple[float | str, float | str | None, float | str | None],
    threads: int,
) -> Request:
    names, labels = _labelled((algorithms,) if isinstance(algorithms, (str, Algorithm)) else algorithms)
    chosen = _checked(names, labels, options or {})
    _check_distinct(names, labels, chosen)
    for share in fractions:
        if not 0 < share <= 1e6:
            raise OptionError(f"{share!r} is not a share above 0; write .5 or 50%", argument="budget_fractions")
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            raise OptionError(f"expected whole numbers >= 0, not {seed!r:.60}", argument="seeds")
    readable = [_readable(budget) for budget in budgets]
    time_limit, gap, patience = limits
    seconds = read_seconds(time_limit, default=SECONDS)
    return Request(
        algorithms=() if "all" in names else names,
        labels=labels,
        budgets=tuple(dict.fromkeys(readable)),
        fractions=tuple(dict.fromkeys(fractions)),
        seeds=tuple(dict.fromkeys(seeds)) or (0,),
        options=chosen,
        machine=machine.model_dump(mode="json") if isinstance(machine, MachineModel) else machine,
        threads=threads,
        time_limit=SECONDS if seconds is None else seconds,
        gap=None if gap is None else float(read_share(gap, "gap")),
        patience=read_seconds(patience, default=None, argument="patience"),
    )


def _readable(budget: object) -> int | str:
    """Return a budget as a number or a text; reject values that are neither a size nor a share in any unit."""
    try:
        plain: int | str = plain_budget(budget)
        if share_of(plain) is None:
            parse_budget(plain)
    except ValueError as error:
        raise OptionError(f"{error}", argument="budgets") from None
    return plain


def _labelled(given: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of all columns, and the algorithm of each label."""
    names: dict[str, str] = {}
    listed = list(given)
    for asked in listed:
        if not isinstance(asked, str):
            raise OptionError(
                f"{brief(getattr(asked, 'name', asked))} is not a name; a comparison runs algorithms by name, in other "
                "processes: register yours with an entry point (docs/how-to/write-an-algorithm.md)",
                argument="algorithms",
            )
    for asked in dict.fromkeys(listed):
        label, name = read_label(asked)
        if label in names:
            raise OptionError(f"{label!r} is given twice", argument="algorithms")
        names[label] = str(name)
    return tuple(names), {label: name for label, name in names.items() if label != name}


def _checked(
    names: Sequence[str], labels: Mapping[str, str], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Reject unknown algorithms, and options that their algorithm does not have, before any work.

    Returns
    -------
    dict of algorithm or label to options
        The converted options: ``"3"`` and ``3`` are one option, and one job.
    """
    from remat.plugin.options import make_options
    from remat.plugin.registry import algorithms

    known = {algorithm.name: algorithm for algorithm in algorithms()}
    asked = [("algorithms", labels.get(name, name), name in labels) for name in names]
    for where, name, labelled in [*asked, *(("options", labels.get(name, name), True) for name in options)]:
        if name not in known and (labelled or name not in RESERVED):
            near = nearest(name, [*known, *labels])
            hint = f"did you mean {near!r}?" if near else "`remat algorithms` lists those that are installed"
            raise OptionError(f"unknown algorithm {name!r}; {hint}", argument=where)
    converted = {}
    for label, given in options.items():
        algorithm = known[labels.get(label, label)]
        model = make_options(algorithm, given) if algorithm.is_available() else None
        converted[label] = dict(given) if model is None else model.model_dump(mode="json", exclude_unset=True)
    return converted


def _check_distinct(names: Sequence[str], labels: Mapping[str, str], options: Mapping[str, Mapping[str, Any]]) -> None:
    """Reject two columns that would be the same solves."""
    every = names if not labels or "all" not in names else [*labels, *dict.fromkeys(labels.values())]
    seen: dict[str, str] = {}
    for name in every:
        solve = repr((labels.get(name, name), sorted(options.get(name, {}).items())))
        if solve in seen:
            raise OptionError(
                f"{seen[solve]!r} and {name!r} are the same algorithm with the same options", argument="algorithms"
            )
        seen[solve] = name


def _memory(limit: int | str | None, workers: int) -> int | None:
    if limit is not None:
        try:
            return parse_budget(limit)
        except ValueError as error:
            raise OptionError(f"{error}", argument="memory_limit") from None
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return min([whole, *_container_memory()]) * 9 // 10 // workers


def _container_memory() -> list[int]:
    """Return the memory limits of the container, from control groups of version 2 or 1; empty if there are none."""
    found = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text("ascii")))  # "max": no limit
    return found


def _sources(instances: Any, stack: ExitStack) -> list[Source]:
    """Find the documents; instances in memory are written to a folder that exists until the run ends."""
    single = isinstance(instances, (str, os.PathLike, Mapping)) or hasattr(instances, "model_dump")
    given: list[Any] = [instances] if single else list(cast("Iterable[Any]", instances))
    paths = [item for item in given if isinstance(item, (str, os.PathLike))]
    loose = [item for item in given if not isinstance(item, (str, os.PathLike))]
    sources = find_sources(paths) if paths or not loose else []
    if not given:
        raise OptionError("no instances to compare on")
    if loose:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="remat-")))
        taken = {source.label for source in sources}
        sources += [_written(item, folder, taken) for item in loose]
    return sources


def _written(item: Any, folder: Path, taken: set[str]) -> Source:
    import json

    from remat.instance.base import instance_document

    document = instance_document(item) if hasattr(item, "model_dump") else dict(item)
    base = str(document.get("name") or "instance")
    label, number = base, 1
    while label in taken:
        number += 1
        label = f"{base} ({number})"
    taken.add(label)
    path = folder / f"{len(taken)}.json"
    path.write_text(json.dumps(document, default=str), "utf-8")
    return Source(label=label, path=str(path), family="given")


def _journal(output: str | os.PathLike[str]) -> Journal:
    if not os.fspath(output):  # for example from an unset shell variable: not meant as the current folder
        raise OptionError("name a folder", argument="output")
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make folder {str(folder)!r}: {error.strerror or error}", argument="output") from None
    return Journal(folder / JOURNAL)


@dataclass
class _Kept:
    """Outputs of schedules in addition to their figures: small pictures, and pages in a folder (None: none)."""

    pictures: bool
    folder: Path | None
    pages: bool | None
    trouble: str = ""

    def settle(self, cells: int) -> None:
        """Decide whether to write pages, if that was left open, and create their folder."""
        if self.folder is None or (self.pages is None and cells > MOST_PAGES):
            self.folder = None
            return
        self._try(lambda folder: folder.mkdir(exist_ok=True))

    def keep(self, key: str, page: str) -> None:
        """Write the page of a cell; without a page, remove that of an earlier answer."""
        name = page_name(key)
        if page:
            self._try(lambda folder: write_text(folder / name, [page]))
        else:
            self._try(lambda folder: (folder / name).unlink(missing_ok=True))

    def _try(self, what: Callable[[Path], object]) -> None:
        """Run an operation on which no answer depends: a full disk stops the pages, not the comparison."""
        if self.folder is None:
            return
        try:
            what(self.folder)
        except (OSError, RematError) as error:
            self.trouble, self.folder = f"pages of schedules are missing: {error}", None


def page_name(key: str) -> str:
    """Return the file name of a cell's page."""
    return f"{key[:20]}.html"


class _Run:
    """A comparison in progress."""

    def __init__(
        self,
        request: Request,
        executor: Executor,
        journal: Journal | None,
        rerun: str | None,
        workers: int,
        kept: _Kept,
        listener: Listener,
    ) -> None:
        self._request = request
        self._executor = executor
        self._journal = journal
        self._rerun = rerun
        self._workers = workers
        self._kept = kept
        self._listener = listener
        self._interrupted = False

    def all(self, sources: Sequence[Source]) -> Comparison:
        cells: dict[int, Cell] = {}
        planned: list[Job | Cell] = []
        digests: dict[str, str] = {}
        for item in self._described(sources):
            if isinstance(item, Cell):
                planned.append(item)
                continue
            planned += jobs_of(self._request, item, digests)
        self._kept.settle(len(planned))
        answers = self._answered([entry for entry in planned if isinstance(entry, Job)])
        for index, entry in enumerate(planned):
            if isinstance(entry, Cell):
                cells[index] = entry
            elif entry.key in answers:
                cells[index] = Cell(job=entry, answer=answers[entry.key])
        notes = []
        if self._journal is not None and self._journal.damaged:
            notes.append(f"{self._journal.damaged} damaged lines of the journal were skipped; their jobs were repeated")
        if self._kept.trouble:
            notes.append(self._kept.trouble)
        return Comparison(tuple(cells.values()), interrupted=self._interrupted, notes=tuple(notes))

    def _described(self, sources: Sequence[Source]) -> list[Described | Cell]:
        """Read every instance; a document that is not an instance becomes a cell."""
        found: dict[int, Described | Cell] = {}
        machine = self._request.machine
        requests = [{"do": "describe", "source": source.path, "machine": machine} for source in sources]
        self._listener(Tally(phase="reading", total=len(requests), done=0))
        with self._replies(requests) as replies:
            for index, reply in replies:
                source = sources[index]
                if "facts" in reply:
                    found[index] = Described(source=source, **reply["facts"])
                else:
                    found[index] = unreadable(source, _as_unreadable(Answer.from_dict(reply["answer"])))
                self._listener(Tally(phase="reading", total=len(requests), done=len(found)))
        return [found[index] for index in sorted(found)]

    def _answered(self, jobs: Sequence[Job]) -> dict[str, Answer]:
        """Run the jobs that the journal does not contain; jobs with equal keys run once."""
        had = {} if self._journal is None else self._journal.answers
        answers = {job.key: had[job.key] for job in jobs if job.key in had and not self._again(had[job.key])}
        waiting = list({job.key: job for job in jobs if job.key not in answers}.values())
        known = len(answers)
        self._tell(len(waiting), 0, known, None)
        with self._replies([self._asked(job) for job in waiting]) as replies:
            for done, (index, reply) in enumerate(replies, 1):
                job, answer = waiting[index], Answer.from_dict(reply["answer"])
                answers[job.key] = answer
                self._kept.keep(job.key, reply.get("page", ""))
                if self._journal is not None:
                    self._journal.add(job.key, answer, _about(job))
                self._tell(len(waiting), done, known, Cell(job=job, answer=answer))
        return answers

    def _again(self, answer: Answer) -> bool:
        return self._rerun == "all" or (self._rerun == "failed" and answer.outcome in FAILED)

    def _asked(self, job: Job) -> dict[str, Any]:
        return {
            "do": "solve",
            "source": job.source,
            "algorithm": job.solver,
            "options": dict(job.options),
            "capacity": job.capacity,
            "machine": self._request.machine,
            "seed": job.seed,
            "threads": self._request.threads,
            "time_limit": self._request.time_limit,
            "gap": self._request.gap,
            "patience": self._request.patience,
            "picture": self._kept.pictures,
            "page": self._kept.folder is not None,
        }

    @contextmanager
    def _replies(self, requests: Sequence[dict[str, Any]]) -> Iterator[Iterator[Reply]]:
        """Pass requests to the executor; Ctrl-C ends the block that receives the replies, and stops running jobs."""
        if self._interrupted or not requests:
            yield iter(())
            return
        replies = self._executor.run(requests)
        try:
            yield replies
        except KeyboardInterrupt:
            self._interrupted = True
        finally:
            replies.close()

    def _tell(self, total: int, done: int, known: int, last: Cell | None) -> None:
        most = -(-(total - done) // self._workers) * self._request.time_limit
        self._listener(Tally(phase="solving", total=total, done=done, known=known, most_seconds=most, last=last))


def _as_unreadable(answer: Answer) -> Answer:
    """Keep limits unchanged; every other outcome means that the document is unusable."""
    keep = (Outcome.TIME_LIMIT, Outcome.MEMORY_LIMIT)
    return answer if answer.outcome in keep else replace(answer, outcome=Outcome.UNREADABLE)


def _about(job: Job) -> dict[str, Any]:
    """Return the description of a job in a journal line, for human readers."""
    return {
        "instance": job.instance,
        "algorithm": job.algorithm,
        "version": job.version,
        "budget": job.budget,
        "seed": job.seed,
        "at": round(time.time(), 3),
    }
