"""Public functions refuse misspelt, missing and surplus arguments by name, and suggest what is meant."""

import contextlib
import inspect

import numpy as np
import pytest

import remat

BUILDERS = {"adjoint", "chain", "dag", "device", "join", "machine", "pipeline", "tree"}
FUNCTIONS = {name: value for name in remat.__all__ if inspect.isfunction(value := getattr(remat, name))}
METHODS = {
    f"Prepared.{name}": value for name, value in vars(remat.Prepared).items() if inspect.isfunction(value)
    if not name.startswith("_")
}  # fmt: skip
CALLS = FUNCTIONS | METHODS


def refused(name, *arguments, **keywords):
    call = CALLS[name]
    own = (None, *arguments) if name in METHODS else arguments
    with pytest.raises(remat.InstanceError if name in BUILDERS else remat.OptionError) as caught:
        call(*own, **keywords)
    return str(caught.value)


def keywords_of(name):
    """All names that a call takes, those of its TypedDict too."""
    parameters = inspect.signature(CALLS[name]).parameters.values()
    plain = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD and one.name != "self"]
    if len(plain) == len(parameters) - (name in METHODS):
        return plain
    (more,) = (one.annotation for one in parameters if one.kind is one.VAR_KEYWORD)
    further = inspect.unwrap(CALLS[name]).__globals__[more.removeprefix("Unpack[").removesuffix("]")]
    return [*plain, *further.__annotations__]


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelt_argument_is_an_error_that_suggests_the_right_one(name):
    known = keywords_of(name)
    for key in known:
        if len(key) > 3:
            wrong = key[0] + key[2:]
            text = refused(name, **{wrong: 1})
            assert text.startswith(f"{wrong}: ")
            meant = text.partition("did you mean ")[2].removesuffix("?")
            assert meant in known
            assert meant == key or abs(len(meant) - len(key)) <= 1
    assert "its arguments are" in refused(name, zzzzzzzz=1) or not known
    assert "similar ones are" in refused(name, **{f"zzzzzzzz_{known[-1].split('_')[0]}": 1}) or len(known) < 2


@pytest.mark.parametrize("name", CALLS)
def test_missing_and_surplus_arguments_are_named(name):
    parameters = inspect.signature(CALLS[name]).parameters.values()
    required = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    for missing in [key for key in required if key != "self"]:
        rest = {key: 1 for key in required if key not in (missing, "self")}
        assert refused(name, **rest).startswith(f"{missing}: ")
    assert "by position" in refused(name, *[1] * (len(parameters) + 5))


def test_an_argument_given_twice_is_named():
    assert refused("solve", {}, instance={}).startswith("instance: remat.solve got it twice")


WRONG = [
    3,
    2.5,
    object(),
    np.arange(3.0),
    np.array(None),
    {1: 2},
    {("a", "b"): 1},
    [["a"]],
    1j,
    type,
    b"x",
]
CHAIN = remat.chain(forward_time=[1, 2, 3], backward_time=2, output_size=4, input_size=4, saved_size=3)
PREPARED = remat.prepare(CHAIN, algorithm="rotor")
ASKED = {
    "solve": (remat.solve, {"instance": CHAIN, "algorithm": "periodic"}),
    "prepare": (remat.prepare, {"instance": CHAIN, "algorithm": "periodic"}),
    "Prepared.solve": (PREPARED.solve, {"budget": 50}),
    "Prepared.curve": (PREPARED.curve, {"budgets": [50]}),
    "Prepared.least_budget": (PREPARED.least_budget, {}),
    "least_budget": (remat.least_budget, {"instance": CHAIN, "algorithm": "periodic"}),
    "largest_batch": (remat.largest_batch, {"instance": CHAIN, "algorithm": "periodic", "budget": 100}),
    "sweep": (remat.sweep, {"instance": CHAIN, "algorithms": "periodic", "budgets": [50]}),
    "verify": (remat.verify, {"instance": CHAIN, "schedule": remat.solve(CHAIN, algorithm="keep-all").to_dict()}),
    "show": (remat.show, {"instance": CHAIN}),
    "layout": (remat.layout, {"source": remat.solve(CHAIN, algorithm="keep-all")}),
    "stream": (remat.stream, {"instance": remat.adjoint(9, storage=[{"name": "ram", "slots": 3}])}),
    "schedule_of": (remat.schedule_of, {"instance": CHAIN, "runs": remat.solve(CHAIN, algorithm="keep-all").order}),
    "example": (remat.example, {"name": "resnet50"}),
    "algorithms": (remat.algorithms, {}),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_an_argument_is_there_is_an_answer_or_an_error_that_names_it(name):
    call, arguments = ASKED[name]
    for key in set(keywords_of(name)) - {"progress", "context"}:  # any object is called, or a plugin's own
        for wrong in WRONG:
            with contextlib.suppress(remat.RematError):
                call(**arguments | {key: wrong})
    with pytest.raises(remat.RematError):
        call(**arguments | {keywords_of(name)[0]: object()})


def test_type_errors_of_the_body_stay():
    from remat.errors import checked_call

    @checked_call(remat.OptionError)
    def broken(value):
        return value + "1"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)
