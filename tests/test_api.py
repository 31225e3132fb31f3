"""The reference of the library is complete: every public name has numpydoc, with each argument and attribute."""

import dataclasses
import enum
import inspect
import re
import typing
from functools import cached_property

import pytest
from pydantic import BaseModel

import remat
from remat.building.chain import ChainArguments
from remat.building.common import Common
from remat.building.dag import DagArguments
from remat.building.pipeline import PipelineArguments

NAMES = {name: inspect.unwrap(getattr(remat, name)) for name in remat.__all__}
FUNCTIONS = {name: value for name, value in NAMES.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in NAMES.items() if inspect.isclass(value)}
METHODS = {
    f"{name}.{key}": inspect.unwrap(member)
    for name, value in CLASSES.items()
    for key, member in vars(value).items()
    if inspect.isfunction(member) and not key.startswith("_") and not issubclass(value, BaseModel)
}
ARGUMENTS = (Common, ChainArguments, DagArguments, PipelineArguments)


def sections(text):
    """The sections of a docstring by their titles."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(text), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed(section):
    """The names that a section explains: ``a, b : type`` at the margin."""
    lines = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for line in lines for name in line.partition(" : ")[0].split(",")]


def test_every_name_is_a_function_or_a_class_or_a_union():
    rest = NAMES.keys() - FUNCTIONS.keys() - CLASSES.keys()
    assert {name for name in rest if not typing.get_args(NAMES[name])} == set()


@pytest.mark.parametrize("name", FUNCTIONS | METHODS)
def test_functions_explain_all_arguments(name):
    function = (FUNCTIONS | METHODS)[name]
    assert function.__doc__, name
    assert re.match(r"[^\n]+\.$", function.__doc__.split("\n")[0]), name
    found = sections(function.__doc__)
    parameters = [key for key in inspect.signature(function).parameters if key != "self"]
    one_of_a_method = name in METHODS and len(parameters) == 1  # it has a summary line
    if (
        parameters
        and not one_of_a_method
        and not re.search(r"^ *Parameters(?:,| and) .* (?:are|of) ", function.__doc__, re.MULTILINE)
    ):
        assert sorted(listed(found.get("Parameters", ""))) == sorted(parameters)
    if inspect.signature(function).return_annotation not in ("None", None) and name in FUNCTIONS:
        assert found.get("Returns", found.get("Yields")), name


@pytest.mark.parametrize("name", CLASSES)
def test_classes_explain_all_attributes(name):
    value = CLASSES[name]
    assert value.__doc__, name
    assert value.__doc__.split("\n")[0].endswith("."), name
    found = sections(value.__doc__)
    if issubclass(value, BaseModel):
        assert {key for key, field in value.model_fields.items() if not field.description} <= {"kind"}
    elif dataclasses.is_dataclass(value):
        fields = {one.name for one in dataclasses.fields(value) if not one.name.startswith("_")}
        assert fields - set(listed(found.get("Attributes", ""))) == set()
    for key, member in vars(value).items():
        if isinstance(member, (property, cached_property)) and not key.startswith("_"):
            assert (member.fget if isinstance(member, property) else member.func).__doc__, key


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_of_builders_are_explained(arguments):
    own = [key for key in arguments.__annotations__ if arguments is Common or key not in Common.__annotations__]
    assert listed(sections(arguments.__doc__)["Attributes"]) == own


def test_members_of_enumerations_are_explained():
    for value in CLASSES.values():
        if issubclass(value, enum.Enum):
            assert all(member.name in value.__doc__ or member.value in value.__doc__ for member in value), value
