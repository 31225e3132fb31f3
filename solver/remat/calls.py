"""Calls of public functions: misspelt, missing and surplus arguments are errors that suggest a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from remat.errors import InstanceError, OptionError
from remat.messages import listing, nearest

P = ParamSpec("P")
R = TypeVar("R")


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

        @wraps(function)
        def call(*arguments: P.args, **keywords: P.kwargs) -> R:
            if not keywords.keys() <= known:
                wrong = next(key for key in keywords if key not in known)
                raise _error(error, _unknown(function, wrong, [*named, *further]), wrong)
            try:
                return function(*arguments, **keywords)
            except TypeError as refused:
                trace = refused.__traceback__
                if trace is not None and trace.tb_next is not None:
                    raise  # from the body of the function
                message, argument = _unbound(function, named[: code.co_argcount], len(arguments), keywords)
            raise _error(error, message, argument)

        return call

    return decorated


def _error(error: type[InstanceError] | type[OptionError], message: str, argument: str) -> Exception:
    return error(message, argument) if issubclass(error, InstanceError) else error(message, argument=argument)


def _name(function: Callable[..., Any]) -> str:
    """Return how messages call a function: ``remat.chain``, or ``Prepared.solve``."""
    qualified = function.__qualname__
    return qualified if "." in qualified else f"remat.{qualified}"


def _unknown(function: Callable[..., Any], wrong: str, named: Sequence[str]) -> str:
    known = [name for name in named if name != "self"]
    near = nearest(wrong, known)
    if near is not None:
        return f"{_name(function)} has no such argument; did you mean {near}?"
    words = _words(wrong)
    alike = [name for name in known if words & _words(name)]
    if alike:
        return f"{_name(function)} has no such argument; similar ones are {listing(alike)}"
    return f"{_name(function)} has no such argument; its arguments are {listing(known)}"


def _words(name: str) -> set[str]:
    """Return the words of a name, of each the letters by which they are compared."""
    return {word[:4] for word in name.split("_")}


def _unbound(
    function: Callable[..., Any], positional: Sequence[str], given: int, keywords: dict[str, Any]
) -> tuple[str, str]:
    """Say why a call does not fit a function, and name the argument."""
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
