"""Translation from Python's syntax tree to LLVM: a module of functions, and the body of each; see `lowering`."""

from __future__ import annotations

import ast
import ctypes
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from remat_algorithms.kit.compile.arithmetic import (
    BUILTIN,
    BYTE,
    INT,
    KINDS,
    REAL,
    TRUTH,
    Arithmetic,
    constant_of,
)
from remat_algorithms.kit.compile.records import Kind

LIBRARY = ("pow", "exp")
"""Functions of the C library. `math` calls them too, so results are identical to the bit."""

ELEMENTS: dict[str, ir.Type] = {"int": INT, "float": REAL, "bool": BYTE}
"""Types of array elements in memory."""

LARGEST = 12
"""Maximum number of blocks of a function that may be inlined; larger ones would double the compile time."""


class Field(NamedTuple):
    """A field of a record: its kind, and its position among the record's integers."""

    kind: Kind
    place: int


@dataclass(frozen=True)
class Record:
    """A named tuple, or mutable cells: a pointer to its integers."""

    pointer: Any
    fields: dict[str, Field]
    changes: bool


@dataclass(frozen=True)
class View:
    """An array or a part of one: its first element, and its lengths, which are loaded on use."""

    pointer: Any
    lengths: tuple[Callable[[], Any], ...]


class Site(NamedTuple):
    """A source position at which an index is checked."""

    function: str
    line: int
    text: str


@dataclass
class _Loop:
    again: Any
    end: Any


Signature = tuple[types.FunctionType, tuple[Any, ...]]


class Module:
    """The functions that an entry calls, compiled together.

    Parameters
    ----------
    tuples, cells : mapping of str to kinds
        Fields of each record type, by the annotation of the parameters.
    failure : ctypes array of three integers, optional
        Compiled code stores the first out-of-range index here: the number of its `Site` from 1, the index, the length.
        None disables the checks.
    """

    def __init__(
        self,
        tuples: Mapping[str, Sequence[Kind]],
        cells: Mapping[str, Sequence[Kind]],
        failure: ctypes.Array[ctypes.c_int64] | None,
    ) -> None:
        self.cells = frozenset(cells)
        self.fields = {name: _fields(kinds) for name, kinds in [*tuples.items(), *cells.items()]}
        self.module = ir.Module("remat")
        self.functions: dict[Signature, ir.Function] = {}
        self.constant = self.module.add_metadata([])
        self.library = {
            name: ir.Function(self.module, ir.FunctionType(REAL, [REAL] * count), name)
            for name, count in zip(LIBRARY, (2, 1), strict=True)
        }
        self.sites: list[Site] = []
        self.failure = None
        if failure is not None:
            self.failure = ir.Constant(INT, ctypes.addressof(failure)).inttoptr(INT.as_pointer())

    def function(self, source: types.FunctionType, arguments: Sequence[Any] | None = None) -> ir.Function:
        """Return the compiled twin of a function for these argument types; compile it on first use.

        Parameters
        ----------
        source : function
        arguments : sequence, optional
            None for the entry, which takes only records and numbers.
        """
        notes = {name: str(note) for name, note in inspect.get_annotations(source).items()}
        result = notes.pop("return")
        if arguments is not None and len(arguments) != len(notes):
            raise TypeError(f"{source.__name__} takes {len(notes)} arguments")
        taken: list[ir.Type] = []
        lengths: list[int] = []
        for place, note in enumerate(notes.values()):
            value = None if arguments is None else arguments[place]
            lengths.append(len(value.lengths) if isinstance(value, View) else 0)
            if isinstance(value, View) and note.endswith("Array"):
                taken += [value.pointer.type, *[INT] * lengths[-1]]
            else:
                taken.append(self._type_of(note))
        known = self.functions.get((source, tuple(map(str, taken))))
        if known is not None:
            return known
        kind = ir.FunctionType(self._result_of(result, is_entry=arguments is None), taken)
        name = f"{source.__module__}.{source.__name__}.{len(self.functions)}"
        target = ir.Function(self.module, kind, name)
        target.linkage = "external" if arguments is None else "internal"
        target.attributes.add("nounwind")
        self.functions[source, tuple(map(str, taken))] = target
        Body(self, source, target).emit(notes, lengths)
        if len(target.blocks) > LARGEST:
            target.attributes.add("noinline")
        return target

    def _type_of(self, note: str) -> ir.Type:
        if note in KINDS:
            return KINDS[note]
        if note in self.fields:
            return INT.as_pointer()
        raise TypeError(f"unknown type {note}")

    def _result_of(self, note: str, *, is_entry: bool) -> ir.Type:
        if note == "None":
            return ir.VoidType()
        # A bool in C is a byte.
        return BYTE if is_entry and note == "bool" else KINDS[note]


def _fields(kinds: Sequence[Kind]) -> dict[str, Field]:
    found, place = {}, 0
    for kind in kinds:
        found[kind.name] = Field(kind, place)
        place += 1 + kind.dimensions
    return found


@dataclass
class Body:
    """Translator of the body of one function."""

    module: Module
    source: types.FunctionType
    target: ir.Function
    names: dict[str, Any] = field(default_factory=dict)
    loops: list[_Loop] = field(default_factory=list)

    def emit(self, notes: Mapping[str, str], lengths: Sequence[int]) -> None:
        """Translate the function: `notes` annotate its parameters, `lengths` count the lengths after each."""
        self.known: dict[str, Any] = self.source.__globals__  # pyright: ignore[reportAttributeAccessIssue]
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.source))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.head = ir.IRBuilder(self.target.append_basic_block("variables"))
        start = self.target.append_basic_block("start")
        self.builder: Any = ir.IRBuilder(start)
        self.numbers = Arithmetic(self.builder)
        given = list(self.target.args)
        for (name, note), count in zip(notes.items(), lengths, strict=True):
            value, own, given = given[0], given[1 : 1 + count], given[1 + count :]
            if note in self.module.fields:
                self.names[name] = self._record(value, note)
            elif count:
                self.names[name] = View(value, tuple(map(_known, own)))
            else:
                self._assign_name(name, value)
        self._block(tree.body)
        if not self.builder.block.is_terminated:
            if self.target.return_value.type != ir.VoidType():
                self.builder.unreachable()
            else:
                self.builder.ret_void()
        self.head.branch(start)

    # Statements.

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, [self._any(value) for value in values], strict=True):
                    self._assign(target, value)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._any(value))
            case ast.AugAssign(target=target, op=operator, value=value):
                place = self._place(target)
                self._store(self.numbers.arithmetic(operator, self._load(place), self._any(value)), place)
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._while(test, body)
            case ast.For(target=ast.Name(id=name), iter=iterated, body=body, orelse=[]):
                self._for(name, iterated, body)
            case ast.Break():
                self.builder.branch(self.loops[-1].end)
            case ast.Continue():
                self.builder.branch(self.loops[-1].again)
            case ast.Return(value=None):
                self.builder.ret_void()
            case ast.Return(value=ast.expr() as value):
                self.builder.ret(self.numbers.cast(self._any(value), self.target.return_value.type))
            case _:
                raise self._refuse(node)

    def _refuse(self, node: ast.AST) -> TypeError:
        line = getattr(node, "lineno", 0) + self.source.__code__.co_firstlineno - 1
        return TypeError(f"{self.source.__code__.co_filename}:{line}: cannot compile {ast.unparse(node)}")

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        else:
            self._store(value, self._place(target))

    def _assign_name(self, name: str, value: Any) -> None:
        if isinstance(value, View | Record):
            if name in self.names:
                raise TypeError(f"{name} is assigned twice")
            self.names[name] = value
            return
        if name not in self.names:
            self.names[name] = self.head.alloca(value.type, name=name)
        self._store(value, self.names[name])

    def _place(self, node: ast.expr) -> Any:
        """Return the pointer to an assignable target."""
        match node:
            case ast.Name(id=name) if not isinstance(self.names.get(name), None | View | Record):
                return self.names[name]
            case ast.Attribute():
                record, own = self._owner(node)
                if record.changes:
                    return self._part(record, own.place, own.kind.type)
            case ast.Subscript():
                found = self._element(node)
                if not isinstance(found, View):
                    return found
        raise self._refuse(node)

    def _store(self, value: Any, place: Any) -> None:
        self.builder.store(self.numbers.cast(value, place.type.pointee), place)

    def _load(self, place: Any) -> Any:
        value = self.builder.load(place)
        return self.numbers.truth(value) if value.type == BYTE else value

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        decided = self.numbers.truth(self._any(test))
        if isinstance(decided, ir.Constant):
            self._block(body if decided.constant else orelse)
            return
        then, other, end = (self.target.append_basic_block(name) for name in ("then", "else", "end"))
        self.builder.cbranch(decided, then, other)
        for block, statements in ((then, body), (other, orelse)):
            self.builder.position_at_end(block)
            self._block(statements)
            if not self.builder.block.is_terminated:
                self.builder.branch(end)
        self.builder.position_at_end(end)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        again, inside, end = (self.target.append_basic_block(name) for name in ("while", "body", "end"))
        self.builder.branch(again)
        self.builder.position_at_end(again)
        self.builder.cbranch(self.numbers.truth(self._any(test)), inside, end)
        self._loop(_Loop(again, end), inside, body)

    def _loop(self, loop: _Loop, inside: Any, body: Sequence[ast.stmt]) -> None:
        self.loops.append(loop)
        self.builder.position_at_end(inside)
        self._block(body)
        if not self.builder.block.is_terminated:
            self.builder.branch(loop.again)
        self.loops.pop()
        self.builder.position_at_end(loop.end)

    def _for(self, name: str, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        table, step = None, 1
        match iterated:
            case ast.Call(func=ast.Name(id="range"), args=[stop]):
                first, last = ir.Constant(INT, 0), self.numbers.cast(self._any(stop), INT)
            case ast.Call(func=ast.Name(id="range"), args=[start, stop]):
                first, last = (self.numbers.cast(self._any(value), INT) for value in (start, stop))
            case ast.Call(func=ast.Name(id="range"), args=[start, stop, ast.Constant() | ast.UnaryOp() as by]):
                first, last = (self.numbers.cast(self._any(value), INT) for value in (start, stop))
                step = ast.literal_eval(by)
            case ast.Name(id=constant) if isinstance(self.known.get(constant), tuple):
                values = self.known[constant]
                table = self.head.alloca(INT, size=len(values))
                for place, value in enumerate(values):
                    self.builder.store(ir.Constant(INT, value), self.builder.gep(table, [ir.Constant(INT, place)]))
                first, last = ir.Constant(INT, 0), ir.Constant(INT, len(values))
            case _:
                raise self._refuse(iterated)
        counter = self.head.alloca(INT)
        self.builder.store(first, counter)
        test, inside, again, end = (self.target.append_basic_block(part) for part in ("for", "body", "next", "end"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(counter)
        self.builder.cbranch(self.builder.icmp_signed("<" if step > 0 else ">", now, last), inside, end)
        self.builder.position_at_end(again)
        self.builder.store(self.builder.add(self.builder.load(counter), ir.Constant(INT, step)), counter)
        self.builder.branch(test)
        self.builder.position_at_end(inside)
        self._assign_name(name, now if table is None else self.builder.load(self.builder.gep(table, [now])))
        self._loop(_Loop(again, end), self.builder.block, body)

    # Expressions.

    def _any(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() as value):
                return ir.Constant(TRUTH, int(value))
            case ast.Constant(value=int() as value) | ast.Constant(value=float() as value):
                return constant_of(value)
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.Attribute(value=ast.Name(id="math"), attr=name):
                return constant_of(getattr(math, name))
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=ast.Attribute(value=array, attr="shape"), slice=ast.Constant(value=int() as axis)):
                return self._view(array).lengths[axis]()
            case ast.Subscript():
                found = self._element(node)
                return found if isinstance(found, View) else self._load(found)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._any(operand)
                return (
                    self.builder.fsub(ir.Constant(REAL, -0.0), value) if value.type == REAL else self.builder.neg(value)
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.numbers.truth(self._any(operand))
                known = isinstance(value, ir.Constant)
                return ir.Constant(TRUTH, int(not value.constant)) if known else self.builder.not_(value)
            case ast.BinOp(left=left, op=operator, right=right):
                return self.numbers.arithmetic(operator, self._any(left), self._any(right))
            case ast.BoolOp(op=operator, values=values):
                return self._shortened(isinstance(operator, ast.And), values)
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._compared(left, operators, others)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call():
                return self._call(node)
        raise self._refuse(node)

    def _name(self, name: str, node: ast.expr) -> Any:
        if name in self.names:
            known = self.names[name]
            return known if isinstance(known, View | Record) else self.builder.load(known)
        value = self.known.get(name)
        if isinstance(value, int | float):
            return constant_of(value)
        raise self._refuse(node)

    def _record(self, pointer: Any, name: str) -> Record:
        return Record(pointer, self.module.fields[name], name in self.module.cells)

    def _owner(self, node: ast.Attribute) -> tuple[Record, Field]:
        """Return the record of an attribute, and its field."""
        record = self._any(node.value)
        if not isinstance(record, Record) or node.attr not in record.fields:
            raise self._refuse(node)
        return record, record.fields[node.attr]

    def _part(self, record: Record, place: int, kind: str = "int") -> Any:
        """Return the pointer to one of the integers that represent a record."""
        pointer = self.builder.gep(record.pointer, [ir.Constant(INT, place)])
        return self.builder.bitcast(pointer, REAL.as_pointer()) if kind == "float" else pointer

    def _fixed(self, record: Record, place: int, kind: str = "int") -> Any:
        value = self.builder.load(self._part(record, place, kind))
        value.set_metadata("invariant.load", self.module.constant)
        return value

    def _attribute(self, node: ast.Attribute) -> Any:
        """Return a field: an array, cells within a named tuple, or a number."""
        record, (kind, place) = self._owner(node)
        if kind.value is not None:
            return ir.Constant(TRUTH, int(kind.value))
        if kind.dimensions:
            pointer = self.builder.inttoptr(self._fixed(record, place), ELEMENTS[kind.type].as_pointer())
            lengths = [partial(self._fixed, record, place + 1 + axis) for axis in range(kind.dimensions)]
            return View(pointer, tuple(lengths))
        if kind.type in self.module.fields:
            return self._record(self.builder.inttoptr(self._fixed(record, place), INT.as_pointer()), kind.type)
        if record.changes:
            return self.builder.load(self._part(record, place, kind.type))
        return self._fixed(record, place, kind.type)

    def _view(self, node: ast.expr) -> View:
        found = self._any(node)
        if not isinstance(found, View):
            raise self._refuse(node)
        return found

    def _element(self, node: ast.Subscript) -> Any:
        """Return the pointer to an element, or the subarray if there are fewer indices than dimensions."""
        view = self._view(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indices) > len(view.lengths):
            raise self._refuse(node)
        offset: Any = None
        for index, length in zip(indices, view.lengths, strict=False):
            number = self.numbers.cast(self._any(index), INT)
            if self.module.failure is not None:
                self._check(number, length(), node)
            offset = number if offset is None else self.builder.add(self.builder.mul(offset, length()), number)
        rest = view.lengths[len(indices) :]
        for length in rest:
            offset = self.builder.mul(offset, length())
        pointer = self.builder.gep(view.pointer, [offset])
        return View(pointer, rest) if rest else pointer

    # Checks.

    def _check(self, index: Any, length: Any, node: ast.expr) -> None:
        """Record an out-of-range index and return from the function; its callers return, too."""
        line = node.lineno + self.source.__code__.co_firstlineno - 1
        self.module.sites.append(Site(self.source.__name__, line, ast.unparse(node)))
        wrong, right = (self.target.append_basic_block(name) for name in ("wrong", "right"))
        self.builder.cbranch(self.builder.icmp_unsigned("<", index, length), right, wrong)
        self.builder.position_at_end(wrong)
        for place, value in enumerate((ir.Constant(INT, len(self.module.sites)), index, length)):
            self.builder.store(value, self.builder.gep(self.module.failure, [ir.Constant(INT, place)]))
        self._leave()
        self.builder.position_at_end(right)

    def _leave(self) -> None:
        result = self.target.return_value.type
        if result == ir.VoidType():
            self.builder.ret_void()
        else:
            self.builder.ret(ir.Constant(result, 0))

    def _leave_after_failure(self) -> None:
        wrong, right = (self.target.append_basic_block(name) for name in ("wrong", "right"))
        noted = self.builder.load(self.module.failure)
        self.builder.cbranch(self.builder.icmp_signed("==", noted, ir.Constant(INT, 0)), right, wrong)
        self.builder.position_at_end(wrong)
        self._leave()
        self.builder.position_at_end(right)

    # Decisions and calls.

    def _compared(self, left: ast.expr, operators: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> Any:
        """Compare in a chain; all terms are evaluated, which has no side effects here."""
        values = [self._any(left), *(self._any(other) for other in others)]
        result = None
        for operator, low, high in zip(operators, values[:-1], values[1:], strict=True):
            one = self.numbers.compare(operator, low, high)
            result = one if result is None else self.builder.and_(result, one)
        return result

    def _shortened(self, both: bool, values: Sequence[ast.expr]) -> Any:
        """Evaluate `and` or `or` with short-circuiting."""
        found = self.numbers.truth(self._any(values[0]))
        if isinstance(found, ir.Constant):
            return self._shortened(both, values[1:]) if bool(found.constant) == both and values[1:] else found
        place = self.head.alloca(TRUTH)
        end = self.target.append_basic_block("decided")
        for number, value in enumerate(values):
            found = found if number == 0 else self.numbers.truth(self._any(value))
            self.builder.store(found, place)
            if number == len(values) - 1:
                self.builder.branch(end)
                break
            further = self.target.append_basic_block("further")
            self.builder.cbranch(found, *((further, end) if both else (end, further)))
            self.builder.position_at_end(further)
        self.builder.position_at_end(end)
        return self.builder.load(place)

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Any:
        decided = self.numbers.truth(self._any(test))
        if isinstance(decided, ir.Constant):
            return self._any(body if decided.constant else orelse)
        then, other, end = (self.target.append_basic_block(name) for name in ("then", "else", "end"))
        self.builder.cbranch(decided, then, other)
        values, blocks = [], []
        for block, value in ((then, body), (other, orelse)):
            self.builder.position_at_end(block)
            values.append(self._any(value))
            blocks.append(self.builder.block)
        if values[0].type != values[1].type:
            raise self._refuse(body)
        for block in blocks:
            self.builder.position_at_end(block)
            self.builder.branch(end)
        self.builder.position_at_end(end)
        result = self.builder.phi(values[0].type)
        for value, block in zip(values, blocks, strict=True):
            result.add_incoming(value, block)
        return result

    def _call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name)) if name in LIBRARY:
                values = [self.numbers.cast(self._any(value), REAL) for value in node.args]
                return self.builder.call(self.module.library[name], values)
            case ast.Call(func=ast.Name(id="len"), args=[array]):
                return self._view(array).lengths[0]()
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in BUILTIN:
                return self.numbers.builtin(name, [self._any(value) for value in arguments])
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                callee = self.known.get(name)
                if isinstance(callee, types.FunctionType):
                    return self._call_of(callee, [self._any(value) for value in arguments])
        raise self._refuse(node)

    def _call_of(self, callee: types.FunctionType, values: Sequence[Any]) -> Any:
        target = self.module.function(callee, values)
        given: list[Any] = []
        for value in values:
            if isinstance(value, View):
                given += [value.pointer, *(length() for length in value.lengths)]
            elif isinstance(value, Record):
                given.append(value.pointer)
            else:
                given.append(self.numbers.cast(value, target.args[len(given)].type))
        result = self.builder.call(target, given)
        if self.module.failure is not None:
            self._leave_after_failure()
        return result


def _known(value: Any) -> Callable[[], Any]:
    return lambda: value
