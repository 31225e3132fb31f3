"""Processes that judge case after case, and a watchdog: what hangs or ends the process is a finding, too."""

import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import connection

from tests.fuzz.cases import draw_case
from tests.fuzz.judging import Finding
from tests.fuzz.portfolio import judge_portfolio, portfolio_case
from tests.fuzz.trial import judge


@dataclass
class Tally:
    """What one case came to."""

    seed: int
    answered: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    findings: list = field(default_factory=list)


@dataclass(frozen=True)
class Mode:
    """What is done with each seed: draw a case, of it what is asked `among` some algorithms (none: all), and judge."""

    portfolio: bool = False
    among: frozenset = frozenset()

    def case(self, seed, without=()):
        """Draw the case of a seed, `without` algorithms that are known to hang."""
        case = (portfolio_case if self.portfolio else draw_case)(seed)
        names = {solve.algorithm for solve in case.solves}
        if self.among:
            names &= self.among | ({"auto"} if self.portfolio else set())
        return case.only(names - set(without))

    @property
    def judge(self):
        return judge_portfolio if self.portfolio else judge


def tally_of(seed, mode, *, without=(), begin=lambda algorithm: None):
    """Draw and judge the case of a seed."""
    case, look = mode.case(seed, without), mode.judge
    answers, findings = look(case, begin)
    tally = Tally(seed, findings=findings)
    for given in answers:
        (tally.refused if given.refusal else tally.answered)[given.solve.algorithm] += 1
    return tally


def _work(pipe, mode):
    while (order := pipe.recv()) is not None:
        seed, without = order
        pipe.send(tally_of(seed, mode, without=without, begin=pipe.send))


class _Worker:
    def __init__(self, mode):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, mode), daemon=True)
        self.process.start()
        other.close()
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
                    if name in worker.without or name in ("drawing", "the"):
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
    return Tally(worker.seed, findings=[Finding(rule, worker.doing.split()[0], message)])
