"""Processes that judge one case after the other, and a watchdog: a hang and the end of a process are findings, too."""

import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import connection

from tests.fuzz.cases import draw_case
from tests.fuzz.failures import failure_document
from tests.fuzz.reduction import reduced, shown_by
from tests.fuzz.trial import judge
from tests.fuzz.verdicts import Finding


@dataclass
class Tally:
    """The outcome of one case: counts of (form, algorithm), and findings with a failure document or None."""

    seed: int
    answered: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)
    findings: list = field(default_factory=list)


@dataclass(frozen=True)
class Mode:
    """Settings of each seed: the form to draw, the algorithms to run, and whether findings are reduced."""

    form: str | None = None
    among: frozenset = frozenset()
    reduce: bool = True

    def case(self, seed, without=()):
        """Draw the case of a seed, `without` algorithms that are known to hang."""
        case = draw_case(seed, self.form, self.among)
        return case.only({solve.algorithm for solve in case.solves} - set(without))


def tally_of(seed, mode, known=(), *, without=(), begin=lambda algorithm: None):
    """Draw and judge the case of a seed; findings whose cause is not `known` are reduced."""
    case = mode.case(seed, without)
    answers, findings = judge(case, begin)
    tally, seen = Tally(seed), set(known)
    for given in answers:
        key = case.form, given.solve.algorithm
        (tally.refused if given.refusal else tally.answered)[key] += 1
        tally.seconds[key] += given.seconds
    for finding in findings:
        document = None
        if finding.cause not in seen:
            seen.add(finding.cause)
            begin(f"{finding.algorithm} in a reduction")
            smaller = _reduced(case, finding, begin) if mode.reduce else (shown_by(case, finding), finding)
            document = failure_document(*smaller)
        tally.findings.append((finding, document))
    return tally


def _reduced(case, finding, begin):
    def watched(smaller, focus):
        begin(f"{finding.algorithm} in a reduction")
        return judge(smaller, focus=focus)

    return reduced(case, finding, watched)


def _work(pipe, mode):
    known = set()
    while (order := pipe.recv()) is not None:
        seed, without = order
        tally = tally_of(seed, mode, known, without=without, begin=pipe.send)
        known |= {finding.cause for finding, _ in tally.findings}
        pipe.send(tally)


class _Worker:
    def __init__(self, mode):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, mode), daemon=True)
        self.process.start()
        other.close()
        self.mode = mode
        self.seed, self.without, self.doing, self.since = None, [], "", 0.0

    def order(self, seed, without=()):
        self.seed, self.without, self.doing, self.since = seed, list(without), "drawing", time.monotonic()
        self.pipe.send((seed, self.without))

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


def farm(seeds, mode, *, jobs, limit):
    """Yield a `Tally` for each seed, in the order in which they end; close the generator to stop early.

    Parameters
    ----------
    seeds : iterable of int
    mode : Mode
    jobs : int
        Processes.
    limit : float
        Seconds after which a solve counts as hanging.
    """
    seeds, workers = iter(seeds), [_Worker(mode) for _ in range(jobs)]
    try:
        idle = list(workers)
        while True:
            for worker in list(idle):
                if (seed := next(seeds, None)) is not None:
                    worker.order(seed)
                    idle.remove(worker)
            busy = [worker for worker in workers if worker not in idle]
            if not busy:
                return
            ready = connection.wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                trouble = _heard(worker) if worker.pipe in ready else None
                if isinstance(trouble, Tally):
                    yield trouble
                    idle.append(worker)
                elif trouble or time.monotonic() - worker.since > limit:
                    rule = trouble or "hangs"
                    yield _blamed(worker, rule, limit)
                    workers[workers.index(worker)] = fresh = _Worker(mode)
                    worker.end()
                    name = worker.doing.split()[0]
                    if name in worker.without or name in ("drawing", "the") or worker.doing.endswith("reduction"):
                        idle.append(fresh)
                    else:
                        fresh.order(worker.seed, [*worker.without, name])
    finally:
        for worker in workers:
            worker.end()


def _heard(worker):
    """Take one message: the tally, the name of what begins, or the end of the process."""
    try:
        message = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        return f"ends-the-process ({worker.process.exitcode})"
    worker.since = time.monotonic()
    if isinstance(message, Tally):
        return message
    worker.doing = message
    return None


def _blamed(worker, rule, limit):
    message = f"while {worker.doing} was at work" + (f" for {limit} s" if rule == "hangs" else "")
    finding = Finding(rule, worker.doing.split()[0], message)
    case = worker.mode.case(worker.seed, worker.without)
    return Tally(worker.seed, findings=[(finding, failure_document(case.only({finding.algorithm}), finding))])
