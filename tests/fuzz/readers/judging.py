"""A check of a reader's guarantees for one document."""

import resource
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass

import remat
from tests.fuzz.readers import LONGEST_MESSAGE, MEMORY, SECONDS

REFRESHED = 500
"""Documents after which the memory limit follows what the process has kept."""


class TooSlow(BaseException):
    """A document takes more CPU time than it may; no handler of errors catches this."""


@dataclass(frozen=True)
class Finding:
    """A broken promise.

    Attributes
    ----------
    rule : str
        ``error``, ``message``, ``time`` or ``memory``.
    place : str
        The innermost function of remat that took part.
    text : str
        What was seen, for people.
    """

    rule: str
    place: str
    text: str

    @property
    def cause(self):
        """Return the key shared by findings of one bug."""
        return f"{self.rule}: {self.place}"


class Judge:
    """Reads documents with a target, under the limits."""

    def __init__(self, target):
        self.target = target
        self.documents = self.refused = 0
        warnings.simplefilter("error")
        signal.signal(signal.SIGPROF, _stop)

    def __call__(self, data):
        """Return the fault in reading one document, or None."""
        if self.documents % REFRESHED == 0:
            _limit_memory()
        self.documents += 1
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            self.target.read(data)
        except remat.RematError as error:
            self.refused += 1
            found = _of_message(error)
        except TooSlow as error:
            found = Finding("time", _place(error), f"took more than {SECONDS:g} s")
        except MemoryError as error:
            found = Finding("memory", _place(error), f"took more than {MEMORY / 2**30:g} GiB")
        except Exception as error:
            shown = traceback.format_exception_only(error)[-1].strip()
            found = Finding("error", f"{type(error).__name__} in {_place(error)}", shown[:1000])
        else:
            found = None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - began
        if found is None and seconds > SECONDS:
            found = Finding("time", "", f"took {seconds:.1f} s")
        return found


def check_message(text):
    """Return the fault in the text of an error, or an empty text."""
    if len(text) > LONGEST_MESSAGE:
        return f"a message of {len(text):,} characters"
    if not text.isprintable():
        return f"a message that is not one printable line: {text!r}"
    return "" if text else "an empty message"


def _of_message(error):
    for text in (str(error), *getattr(error, "more", ()), *getattr(error, "__notes__", ())):
        if wrong := check_message(text):
            return Finding("message", _place(error), f"{wrong}: {text[:200]!r}")
    return None


def _place(error):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/remat" in frame.filename]
    frames = frames or traceback.extract_tb(error.__traceback__)
    if not frames:
        return "(unknown)"
    *_, last = frames
    return f"{'/'.join(last.filename.split('/')[-2:])} {last.name}"


def _stop(number, frame):
    signal.setitimer(signal.ITIMER_PROF, 0)
    raise TooSlow


def _limit_memory():
    if sys.platform != "linux":
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
