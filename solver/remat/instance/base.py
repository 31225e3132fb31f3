"""Fields and properties that all instance kinds share."""

# Annotations are not postponed here: pydantic would have to evaluate each from its text at every start.

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, model_validator

from remat.instance.fields import Model, Size, fail, units_scope
from remat.instance.machine import MachineModel
from remat.instance.native import native
from remat.instance.validation_errors import instance_error
from remat.messages import unknown_memory
from remat.units import Number, Units

SCHEMA: Literal["remat.instance/1"] = "remat.instance/1"
SCHEMA_2: Literal["remat.instance/2"] = "remat.instance/2"
"""`remat.instance/1` plus the fields that `Model.since_2` names."""
SCHEMA_3: Literal["remat.instance/3"] = "remat.instance/3"
"""`remat.instance/2` plus the kinds `pipeline` and `join` and the fields that `Model.since_3` names."""
SCHEMAS = (SCHEMA, SCHEMA_2, SCHEMA_3)

SHOWN_BY = "remat.report.notebook"
"""Module that displays instances. It belongs to a higher layer and is therefore named here, not imported."""

Text = Annotated[str, Field(strict=True, max_length=100_000)]


class UnitsModel(Model):
    """Units of bare numbers: `time` in s, ms, us, ns or unit; `memory` in B or unit."""

    time: Literal["s", "ms", "us", "ns", "unit"] = Field(default="s", description="Unit of bare times.")
    memory: Literal["B", "unit"] = Field(default="B", description="Unit of bare sizes.")

    def build(self) -> Units:
        """Return the plain units that the parsers need."""
        return Units(self.time, self.memory)


def _require_its_head(schema: dict[str, Any]) -> None:
    """Require `schema` and `kind` in documents: only instances created in Python have defaults for them."""
    for key in ("schema", "kind"):
        del schema["properties"][key]["default"]
    schema["required"] = ["schema", "kind", *schema.get("required", ())]


if TYPE_CHECKING:
    Constructed = Model
else:

    class _Constructing(type(Model)):
        def __call__(cls, **fields: Any) -> Any:
            try:
                return super().__call__(**fields)
            except (ValidationError, TypeError):
                plain = native(fields)
            try:
                return super().__call__(**plain)
            except ValidationError as error:
                raise instance_error(error) from None

    class Constructed(Model, metaclass=_Constructing):
        """Let calls of the class accept numpy's numbers and raise `InstanceError`, like `remat.load`."""


class BaseInstance(Constructed):
    """Keys that every kind of instance may have."""

    model_config = ConfigDict(json_schema_extra=_require_its_head)
    annotations: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    """Fields for readers only, by the list whose entries have them: the digest ignores them."""
    schema_: Annotated[
        Literal["remat.instance/1", "remat.instance/2", "remat.instance/3"],
        Field(alias="schema", description="Format; each extends the one before."),
    ] = SCHEMA
    name: Text = Field(default="", description="Name in results.")
    description: Text = Field(default="", description="Description for people; not part of the digest.")
    source: Text = Field(default="", description="Origin of the instance, for people; not part of the digest.")
    units: UnitsModel = Field(
        default=UnitsModel.model_construct(), description="Units of bare numbers; default: seconds and bytes."
    )
    machine: MachineModel | None = Field(
        default=None, description="Memories, processors and links; null: one unbounded memory and one processor."
    )
    static_memory: Size = Field(default=0, description="Bytes that occupy the working memory throughout.")

    @model_validator(mode="wrap")
    @classmethod
    def _read_in_own_units(cls, data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        given = data.get("units") if isinstance(data, dict) else None
        if given is None:
            with units_scope(Units()):
                return handler(data)
        try:
            units = UnitsModel.model_validate(given)
        except ValidationError:
            return handler(data)  # reports the error with its place in the document
        with units_scope(units.build()):
            return handler(data)

    @model_validator(mode="after")
    def _said_by_its_schema(self) -> Self:
        if self.schema_ != SCHEMA_3 and "schema_" in self.model_fields_set:
            for model, at in self.parts_with_newer_fields():
                for number, schema in ((3, SCHEMA_3), (2, SCHEMA_2)):
                    newer = model.newer_keys(number) & model.model_fields_set
                    for key in sorted(newer if schema > self.schema_ else ()):
                        said = f"the document says {self.schema_!r}"
                        raise fail(f"this field needs the schema {schema!r}; {said}", f"{at}.{key}")
        return self

    def __repr__(self) -> str:
        lines: list[str] = import_module(SHOWN_BY).lines(self)
        return "\n".join(lines)

    def __str__(self) -> str:
        return repr(self)

    @property
    def compression_ratios(self) -> Iterable[Number]:
        """The compression ratios of values that have one of their own."""
        return ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the instance as a document, atomically; files that end in ``.gz`` are compressed."""
        from remat.documents import write_text

        write_text(path, [json.dumps(instance_document(self), indent=1, ensure_ascii=False), "\n"])

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        html: str = import_module(SHOWN_BY).html(self)
        return html

    @property
    def least_schema(self) -> str:
        """The lowest schema that can express this instance."""
        for number, schema in ((3, SCHEMA_3), (2, SCHEMA_2)):
            if any(
                getattr(model, key) != type(model).model_fields[key].default
                for model, _ in self.parts_with_newer_fields()
                for key in model.newer_keys(number)
            ):
                return schema
        return SCHEMA

    @property
    def length(self) -> int | None:
        """Number of stages, steps or nodes; None for kinds without one."""
        return None

    @property
    def is_chain(self) -> bool:
        """Whether the instance is a chain of stages or steps (then `lowering.chain_of` returns its arrays)."""
        return False

    @property
    def has_parameters(self) -> bool:
        """Whether the instance has parameters or optimizer states to update."""
        return False

    @property
    def has_storage(self) -> bool:
        """Whether storage levels are listed. Then they define the machine, and budgets refer to the first level."""
        return False

    @property
    def has_states(self) -> bool:
        """Whether storage holds the states of a time loop; then budgets can be counted in states."""
        return False

    @property
    def budgets_are_for_all(self) -> bool:
        """Whether a bare budget is the capacity of every memory, as for the devices of a pipeline."""
        return False

    @property
    def ranks(self) -> int:
        """Number of equal ranks that split the batch; only one of them is modelled."""
        return 1

    @property
    def is_stream(self) -> bool:
        """Whether the work repeats without end; then a schedule is a pattern with a period."""
        return False

    @property
    def samples_seen(self) -> int | None:
        """Number of samples to examine, if all tasks run for one sample after the other without end."""
        return None

    @property
    def has_equal_steps(self) -> bool:
        """Whether all steps of a time loop are equal."""
        return False

    @property
    def initial_level(self) -> str | None:
        """The storage level that also holds the initial state; None if no level does."""
        return None

    @property
    def named_memories(self) -> frozenset[str]:
        """The memories that the instance names because values must be resident there."""
        return frozenset()

    @property
    def listed_variants(self) -> int:
        """Number of (stage, variant) pairs, including repeats; 0 if no stage has several variants."""
        return 0

    def parts_with_newer_fields(self) -> Iterator[tuple[Model, str]]:
        """Yield the models that may have fields of `remat.instance/2`, with their JSON paths."""
        yield self, ""
        for index, memory in enumerate(self.machine.memories if self.machine else ()):
            yield memory, f".machine.memories[{index}]"
        for index, processor in enumerate(self.machine.processors if self.machine else ()):
            yield processor, f".machine.processors[{index}]"
        for index, link in enumerate(self.machine.links if self.machine else ()):
            yield link, f".machine.links[{index}]"


def check_in_memory_names(names: list[str | None], machine: MachineModel | None, at: str) -> None:
    """Reject references to memories that the instance's machine does not have."""
    known = [memory.name for memory in (machine or MachineModel()).memories]
    for name in names:
        if name is not None and name not in known:
            raise fail(unknown_memory(name, known), at)


def instance_document(instance: BaseInstance) -> dict[str, Any]:
    """Return the document of an instance, without defaults, in the lowest schema that can express it."""
    document = instance.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"schema_"})
    kind = getattr(instance, "kind")  # noqa: B009 - a default, but it says what the rest means
    return {"schema": instance.least_schema, "kind": kind} | document


def save_instance(instance: BaseInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance atomically; files that end in ``.gz`` are compressed."""
    instance.save(path)
