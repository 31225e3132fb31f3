"""A small compiler: functions over integers, floats and arrays, from their Python text to machine code by LLVM.

It takes what the search is written in: assignments, arithmetic, comparisons, `if`, `while`, `for` over ranges and
constant tuples, calls among such functions, arrays of one or two dimensions that are fields of named tuples.
Anything else is refused with `TypeError`. Integers have 64 bits, and wrap; indices are not checked.

This is what numba does, in a tenth of its time, since all types are known from annotations and first assignments:
nothing needs to be kept on disk, and a first start is like any other.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from remat_algorithms.kit.compile.arithmetic import BYTE, INT, KINDS, REAL, TRUTH
from remat_algorithms.kit.compile.translation import LIBRARY, Body, Field

LARGEST = 12
"""Blocks of a function beyond which it is never copied into its callers: that would double the time of compiling."""


def layout(arrays: Sequence[Any]) -> Any:
    """Return the integers that stand for the arrays of a named tuple; they must live on meanwhile."""
    parts = [(array.ctypes.data, array.shape[-1], len(array)) for array in arrays]
    return np.array(parts, dtype=np.int64).ravel()


def _fields(arrays: Any) -> dict[str, Field]:
    found = {}
    for place, (name, array) in enumerate(zip(arrays._fields, arrays, strict=True)):
        if array.dtype not in (np.int64, np.float64) or not array.flags.c_contiguous:
            raise TypeError(f"{name} is an array of {array.dtype}")
        found[name] = Field(place, INT if array.dtype == np.int64 else REAL, array.ndim)
    return found


class Module:
    """The functions that an entry calls, compiled together.

    Parameters
    ----------
    records : dict of str to named tuple
        One of each kind that parameters are annotated with, for the types of its arrays.
    """

    def __init__(self, records: dict[str, Any]) -> None:
        self.fields = {name: _fields(arrays) for name, arrays in records.items()}
        self.module = ir.Module("remat")
        self.module.triple = llvm.get_process_triple()
        self.functions: dict[types.FunctionType, ir.Function] = {}
        self.constant = self.module.add_metadata([])
        self.library = {
            name: ir.Function(self.module, ir.FunctionType(REAL, [REAL] * count), name)
            for name, count in zip(LIBRARY, (2, 1), strict=True)
        }

    def type_of(self, annotation: str) -> ir.Type:
        """Return the type of a parameter or result."""
        if annotation in KINDS:
            return KINDS[annotation]
        if annotation == "None":
            return ir.VoidType()
        if annotation == "Array" or annotation in self.fields:
            return INT.as_pointer()
        raise TypeError(f"unknown type {annotation}")

    def function(self, source: types.FunctionType, *, is_entry: bool = False) -> ir.Function:
        """Return the compiled twin of a function, and compile it if it is new."""
        known = self.functions.get(source)
        if known is not None:
            return known
        notes = {name: str(note) for name, note in inspect.get_annotations(source).items()}
        result = self.type_of(notes.pop("return"))
        if is_entry and result == TRUTH:
            # What C calls bool.
            result = BYTE
        kind = ir.FunctionType(result, [self.type_of(note) for note in notes.values()])
        target = ir.Function(self.module, kind, f"{source.__module__}.{source.__name__}")
        target.linkage = "external" if is_entry else "internal"
        target.attributes.add("nounwind")
        self.functions[source] = target
        Body(self, source, target, notes).emit()
        if len(target.blocks) > LARGEST:
            target.attributes.add("noinline")
        return target

    def run_passes(self, *, long_loops: bool) -> Any:
        """Optimise for this machine; return an engine that holds the machine code.

        Loops are unrolled and vectorised only where they are long: it takes a third of the time of compiling.
        """
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name in LIBRARY:
            llvm.add_symbol(name, _address(name))
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        parsed = llvm.parse_assembly(str(self.module))
        tuning = llvm.create_pipeline_tuning_options(speed_level=1)
        tuning.loop_unrolling = tuning.loop_vectorization = tuning.loop_interleaving = long_loops
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(parsed, builder)
        engine = llvm.create_mcjit_compiler(parsed, machine)
        engine.finalize_object()
        return engine


def _address(name: str) -> int:
    """Return where a function of C's library lies."""
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def compiled(entry: Callable[..., Any], records: dict[str, Any], *, long_loops: bool = False) -> Callable[..., Any]:
    """Compile a function with all that it calls.

    Parameters
    ----------
    entry : function
    records : dict of str to named tuple
        As for `Module`.
    long_loops : bool
        Whether most of the time is spent in simple loops over long rows.

    Returns
    -------
    function
        It takes layouts (see `layout`) where `entry` takes named tuples, and holds no lock while it runs.
    """
    assert isinstance(entry, types.FunctionType)
    module = Module(records)
    target = module.function(entry, is_entry=True)
    engine = module.run_passes(long_loops=long_loops)
    notes = {name: str(note) for name, note in inspect.get_annotations(entry).items()}
    outside: dict[str, Any] = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool, "None": None}
    kinds = [outside.get(note, ctypes.c_void_p) for note in notes.values()]
    call = ctypes.CFUNCTYPE(kinds[-1], *kinds[:-1])(engine.get_function_address(target.name))
    call.engine = engine  # type: ignore[attr-defined]  # The machine code lives as long as it.
    return call
