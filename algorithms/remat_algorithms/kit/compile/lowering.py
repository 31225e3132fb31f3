"""Kernels: functions over records and numbers, compiled from their Python source to machine code by LLVM.

Compiling takes a tenth of numba's time, because annotations and first assignments fix all types. Nothing needs to be
cached on disk, and a first start is like any other. `README.md` describes the accepted language and how to write
kernels.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from remat_algorithms.kit.compile.records import Kind, address_of, cells_within, kinds_of

if TYPE_CHECKING:
    from remat_algorithms.kit.compile.translation import Module, Site

VARIABLE = "REMAT_CHECK_INDICES"
"""Environment variable that enables index checks for a whole process."""

OUTSIDE: dict[str, Any] = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool, "None": None}

_LOCK = threading.RLock()
_checking = bool(os.environ.get(VARIABLE))


@cache
def can_compile() -> bool:
    """Whether LLVM is installed; without it, kernels are interpreted, some ten times slower, with the same answers."""
    return importlib.util.find_spec("llvmlite") is not None


@contextmanager
def checked_indices() -> Iterator[None]:
    """Check every index in kernels bound within the context; an out-of-range index raises `IndexError`."""
    global _checking
    before, _checking = _checking, True
    try:
        yield
    finally:
        _checking = before


class Kernel:
    """A function that is compiled when it is bound to records, once per process for each kind of records.

    Parameters
    ----------
    plain : function
        It takes records (named tuples or cells), then numbers.
    long_loops : bool
        Whether simple loops over long rows take most of the time. They are then unrolled and vectorised, which takes a
        third of the compile time.
    """

    def __init__(self, plain: Callable[..., Any], *, long_loops: bool = False) -> None:
        assert isinstance(plain, types.FunctionType)
        self.plain = plain
        self._long_loops = long_loops
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def bind(self, *records: Any) -> Callable[..., Any]:
        """Return the compiled function of the remaining numbers; it holds no lock while it runs.

        The function keeps the records alive. Arrays may be filled in the meantime, but not moved. Without LLVM, the
        interpreted function is returned.

        Raises
        ------
        TypeError
            If the compiler does not support a type or a statement.
        """
        if not can_compile():
            return partial(self.plain, *records)
        tuples: dict[str, tuple[Kind, ...]] = {}
        cells = cells_within(record for record in records if not isinstance(record, ctypes.Structure))
        for note, record in zip(self._notes()[: len(records)], records, strict=True):
            kinds = kinds_of(record)
            known = cells if isinstance(record, ctypes.Structure) else tuples
            if known.setdefault(note, kinds) != kinds:
                raise TypeError(f"{note} denotes records of two kinds")
        key = (_checking, *tuples.items(), *cells.items())
        with _LOCK:
            if key not in self._compiled:
                self._compiled[key] = self._compile(tuples, cells)
        lying = [address_of(record) for record in records]
        bound = partial(self._compiled[key], *(address for address, _ in lying))
        bound.__dict__["kept"] = lying
        return bound

    def _notes(self) -> list[str]:
        return [str(note) for note in inspect.get_annotations(self.plain).values()]

    def _compile(self, tuples: Mapping[str, Sequence[Kind]], cells: Mapping[str, Sequence[Kind]]) -> Callable[..., Any]:
        from remat_algorithms.kit.compile.translation import Module

        failure = (ctypes.c_int64 * 3)() if _checking else None
        module = Module(tuples, cells, failure)
        target = module.function(self.plain)
        engine = _machine_code(module, long_loops=self._long_loops)
        kinds = [OUTSIDE.get(note, ctypes.c_void_p) for note in self._notes()]
        call = ctypes.CFUNCTYPE(kinds[-1], *kinds[:-1])(engine.get_function_address(target.name))
        call.engine = engine  # type: ignore[attr-defined]  # The function keeps the machine code alive.
        return call if failure is None else _raising(call, failure, module.sites)


def _raising(
    call: Callable[..., Any], failure: ctypes.Array[ctypes.c_int64], sites: Sequence[Site]
) -> Callable[..., Any]:
    """Return a function that raises the error recorded by compiled code."""

    def called(*arguments: Any) -> Any:
        result = call(*arguments)
        number, index, length = failure
        if number:
            failure[0] = 0
            site = sites[number - 1]
            raise IndexError(f"{site.function}, line {site.line}: {site.text}: index {index} of {length}")
        return result

    return called


def _machine_code(module: Module, *, long_loops: bool) -> Any:
    """Optimise for this machine; return an engine that holds the machine code."""
    import llvmlite.binding as llvm

    from remat_algorithms.kit.compile.translation import LIBRARY

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in LIBRARY:
        llvm.add_symbol(name, _address(name))
    module.module.triple = llvm.get_process_triple()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    parsed = llvm.parse_assembly(str(module.module))
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_unrolling = tuning.loop_vectorization = tuning.loop_interleaving = long_loops
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


def _address(name: str) -> int:
    """Return the address of a function of the C library."""
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
