"""Kernels: functions over records and numbers, from their Python text to machine code by LLVM.

Compiling takes a tenth of numba's time, since all types are known from annotations and first assignments: nothing needs
to be kept on disk, and a first start is like any other. `README.md` says what is taken, and how kernels are written.
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
"""Environment variable that switches the check of indices on, for a whole process."""

OUTSIDE: dict[str, Any] = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool, "None": None}

_LOCK = threading.RLock()
_checking = bool(os.environ.get(VARIABLE))


@cache
def can_compile() -> bool:
    """Whether LLVM is installed; without it kernels are interpreted, to the same answers, some ten times slower."""
    return importlib.util.find_spec("llvmlite") is not None


@contextmanager
def checked_indices() -> Iterator[None]:
    """Let kernels that are bound meanwhile check every index; they raise `IndexError` where one is out of range."""
    global _checking
    before, _checking = _checking, True
    try:
        yield
    finally:
        _checking = before


class Kernel:
    """A function that is compiled where it is bound to records, once for each kind of them in a process.

    Parameters
    ----------
    plain : function
        It takes records, named tuples or cells, then numbers.
    long_loops : bool
        Whether most of the time is spent in simple loops over long rows. They are unrolled and vectorised then, which
        takes a third of the time of compiling.
    """

    def __init__(self, plain: Callable[..., Any], *, long_loops: bool = False) -> None:
        assert isinstance(plain, types.FunctionType)
        self.plain = plain
        self._long_loops = long_loops
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def bind(self, *records: Any) -> Callable[..., Any]:
        """Return the compiled function of the numbers that follow the records; it holds no lock while it runs.

        What it is bound to lives as long as it. Arrays may be filled meanwhile, but not moved. Without LLVM it is the
        interpreted function.

        Raises
        ------
        TypeError
            If the compiler does not know a type, or a statement.
        """
        if not can_compile():
            return partial(self.plain, *records)
        tuples: dict[str, tuple[Kind, ...]] = {}
        cells = cells_within(record for record in records if not isinstance(record, ctypes.Structure))
        for note, record in zip(self._notes()[: len(records)], records, strict=True):
            kinds = kinds_of(record)
            known = cells if isinstance(record, ctypes.Structure) else tuples
            if known.setdefault(note, kinds) != kinds:
                raise TypeError(f"{note} stands for records of two kinds")
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
        call.engine = engine  # type: ignore[attr-defined]  # The machine code lives as long as it.
        return call if failure is None else _raising(call, failure, module.sites)


def _raising(
    call: Callable[..., Any], failure: ctypes.Array[ctypes.c_int64], sites: Sequence[Site]
) -> Callable[..., Any]:
    """Return a function that raises what compiled code has noted."""

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
    """Return where a function of C's library lies."""
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
