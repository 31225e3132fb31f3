"""The exception tree: every intentional error of remat is a `RematError`, even that of a call with wrong arguments.

`checked_call` raises those of public functions: misspelt, missing and surplus arguments, with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from remat.messages import LONGEST_PATH, brief, listing, nearest, one_line

P = ParamSpec("P")
R = TypeVar("R")


class RematError(ValueError):
    """Base of all errors that name something the caller can fix.

    The text is one printable line of at most `remat.messages.LONGEST_MESSAGE` characters, whatever the message quotes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class QuantityError(RematError):
    """A number, size, time, bandwidth or duration cannot be read, or is out of range."""


class InstanceError(RematError):
    """An instance, machine or schedule document cannot be used.

    Parameters
    ----------
    message : str
        The error, with the figure and the remedy; as an attribute, the text without the path.
    path : str
        JSON path of the error (``$.stages[3].forward_time``), or the argument of a builder (``forward_time[3]``); empty
        if there is none. Long keys in it are shortened.
    more : sequence of str
        Further errors in the document, one line each: notes of the exception, which a traceback shows.
    """

    def __init__(self, message: str, path: str = "", more: Sequence[str] = ()) -> None:
        path = one_line(path, LONGEST_PATH)
        super().__init__(f"{path}: {message}" if path else message)
        self.path, self.message = path, message
        self.more = tuple(map(one_line, more))
        for line in self.more:
            self.add_note(line)


class ScheduleForInstanceError(InstanceError):
    """A schedule was passed instead of an instance."""


class OptionError(RematError):
    """An argument (algorithm, option, budget, limit) cannot be used.

    Parameters
    ----------
    message : str
        The error, with the figure and the remedy; it names neither a command-line flag nor the argument.
    argument : str, optional
        The argument of the library's function, such as ``budget``. The text of the error begins with it; the command
        line inserts its flag there.
    option : str, optional
        The option of the algorithm, instead of an argument.
    """

    def __init__(self, message: str, *, argument: str = "", option: str = "") -> None:
        named = f"option {option}" if option else argument
        super().__init__(f"{named}: {message}" if named else message)
        self.message = one_line(message)
        self.argument = argument
        self.option = option


class MissingLinkError(OptionError):
    """A schedule needs a link that the machine does not have.

    Parameters
    ----------
    source, target : str
        Names of the memories.
    """

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"there is no link from {source} to {target}", argument="machine")


class MissingExtraError(RematError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, extra: str, package: str = "an optional package") -> None:
        super().__init__(f"{feature} needs {package}: pip install 'remat[{extra}]'")


class AlgorithmError(RuntimeError):
    """An algorithm has failed: a bug in the algorithm, not in the input.

    Attributes
    ----------
    package : str
        The importable package that contains the algorithm; empty if it is unknown.
    """

    def __init__(self, message: str, package: str = "") -> None:
        super().__init__(message)
        self.package = package


class ClaimError(AlgorithmError):
    """An algorithm's claim and the verifier disagree."""


def checked_call(
    error: type[InstanceError] | type[OptionError], more: type | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions whose callers may misspell or forget arguments.

    Parameters
    ----------
    error : InstanceError or OptionError
        The exception to raise instead of `TypeError`.
    more : type, optional
        The `TypedDict` of the function's further keyword arguments.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        named: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        further = () if more is None else tuple(more.__annotations__)
        known = frozenset((*named, *further))
        optional = code.co_argcount - len(function.__defaults__ or ())
        without = {key for key, default in (function.__kwdefaults__ or {}).items() if default is None}
        required = {*named[:optional], *named[code.co_argcount :]} - (function.__kwdefaults__ or {}).keys()

        @wraps(function)
        def call(*arguments: P.args, **keywords: P.kwargs) -> R:
            if not keywords.keys() <= known:
                wrong = next(key for key in keywords if key not in known)
                raise _error(error, _unknown(function, wrong, [*named, *further]), wrong)
            given = dict(zip(named, arguments, strict=False))
            surplus = len(arguments) > code.co_argcount or not given.keys().isdisjoint(keywords)
            given |= keywords
            if surplus or not required <= given.keys():
                message, argument = _unbound(function, named[: code.co_argcount], len(arguments), keywords)
                raise _error(error, message, argument)
            if error is OptionError:
                _check_types({key: one for key, one in given.items() if one is not None or key not in without})
            return function(*arguments, **keywords)

        return call

    return decorated


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_algorithm(value: object) -> bool:
    return isinstance(value, str) or type(value).__name__ == "Algorithm"


def _is_mapping(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value))


def _is_flag(value: object) -> bool:
    return type(value).__name__ in ("bool", "bool_")  # of Python and of numpy


def _is_several(value: object) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "shape", None) == ():
        return False
    return value is None or (isinstance(value, Iterable) and not isinstance(value, type))


def _is_names(value: object) -> bool:
    listed = isinstance(value, (list, tuple)) and not all(map(_is_algorithm, value))
    return _is_algorithm(value) or (_is_several(value) and not listed)


TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "algorithm": (_is_algorithm, "a name, or a remat.plugin.Algorithm"),
    "algorithms": (_is_names, "a name or several"),
    "any_instance": (_is_flag, "true or false"),
    "available": (_is_flag, "true or false"),
    "baseline": (_is_text, "a text"),
    "budgets": (_is_several, "a sequence of budgets"),
    "fixed": (_is_mapping, "a mapping of names to addresses"),
    "kind": (_is_text, "a text"),
    "layout": (_is_flag, "true or false"),
    "memory": (_is_text, "a text"),
    "name": (lambda value: isinstance(value, str), "a text"),
    "objective": (_is_text, "a text"),
    "options": (_is_mapping, "a mapping of names to values"),
}
"""Arguments that mean the same in all functions that raise `OptionError`."""


def _check_types(given: Mapping[str, Any]) -> None:
    for key in given.keys() & TYPES.keys():
        fits, wanted = TYPES[key]
        if not fits(given[key]):
            raise OptionError(f"expected {wanted}, not {brief(given[key])}", argument=key)


def _error(error: type[InstanceError] | type[OptionError], message: str, argument: str) -> Exception:
    return error(message, argument) if issubclass(error, InstanceError) else error(message, argument=argument)


def _name(function: Callable[..., Any]) -> str:
    """Return how messages call a function: ``remat.chain``, or ``Prepared.solve``."""
    qualified = function.__qualname__
    return qualified if "." in qualified else f"remat.{qualified}"


REMEDIES = {
    ("adjoint", "slots"): "write storage=[{'name': 'ram', 'slots': 5}]",
    ("adjoint", "levels"): "write storage=[{'name': 'ram', 'slots': 5}, {'name': 'disk', 'bandwidth': '2GB/s'}]",
    ("chain", "budget"): "give it to remat.solve, or a capacity to machine=remat.device('8GB')",
    ("chain", "layers"): "the columns have an entry for each stage; if all are scalars, write length=",
    ("dag", "budget"): "give it to remat.solve, or a capacity to machine=remat.device('8GB')",
    ("dag", "edges"): "they are the first argument, graph",
    ("pipeline", "layers"): "the columns have an entry for each layer; if all are scalars, write length=",
    ("solve", "batch"): "ask remat.largest_batch",
    ("solve", "max_makespan"): "ask remat.least_budget",
    ("solve", "max_overhead"): "ask remat.least_budget",
    ("solve", "memory"): "write budget=",
    ("solve", "timeout"): "write time_limit=",
}
"""Remedies for arguments that other libraries have: function, argument -> text."""


def _unknown(function: Callable[..., Any], wrong: str, named: Sequence[str]) -> str:
    remedy = REMEDIES.get((function.__name__, wrong))
    if remedy is not None:
        return f"{_name(function)} has no such argument; {remedy}"
    known = [name for name in named if name != "self"]
    near = nearest(wrong, known)
    if near is not None:
        return f"{_name(function)} has no such argument; did you mean {near}?"
    words = _words(wrong)
    alike = [name for name in known if words & _words(name)]
    if alike:
        return f"{_name(function)} has no such argument; similar ones are {listing(alike)}"
    return f"{_name(function)} has no such argument; its arguments are {listing(known)} (see help({_name(function)}))"


def _words(name: str) -> set[str]:
    """Return the words of a name, of each the letters by which they are compared."""
    return {word[:4] for word in name.split("_")}


def _unbound(
    function: Callable[..., Any], positional: Sequence[str], given: int, keywords: dict[str, Any]
) -> tuple[str, str]:
    """Describe why a call does not match a function's signature, and name the argument."""
    import inspect

    twice = next((name for name in positional[:given] if name in keywords), None)
    if twice is not None:
        return f"{_name(function)} got it twice, by position and by name", twice
    if given > len(positional):
        first = [name for name in positional if name != "self"]
        most = f"only {listing(first)} may be given by position" if first else "give all arguments by name"
        return f"{_name(function)} got {given} arguments by position; {most}", ""
    parameters = inspect.signature(function).parameters.values()
    present = {*positional[:given], *keywords}
    required = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    missing = [name for name in required if name not in present]
    rest = f" (and {listing(missing[1:])})" if missing[1:] else ""
    return f"{_name(function)} needs this argument{rest}", missing[0]
