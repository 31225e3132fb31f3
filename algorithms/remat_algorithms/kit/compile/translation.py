"""The body of one function on its way from Python's syntax tree into LLVM's language; see `lowering`."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from remat_algorithms.kit.compile.arithmetic import BUILTIN, INT, REAL, TRUTH, Arithmetic, constant_of

if TYPE_CHECKING:
    from remat_algorithms.kit.compile.lowering import Module

PARTS = 3
"""Integers that stand for an array: its address, the length of its rows, its length."""

LIBRARY = ("pow", "exp")
"""Functions of C's library, which `math` calls, too: so results are the same to the bit."""


class Field(NamedTuple):
    """An array of a named tuple: its place, its type, its dimensions."""

    place: int
    type: ir.Type
    dimensions: int


@dataclass(frozen=True)
class Record:
    """A named tuple of arrays, as a pointer to `PARTS` integers for each."""

    pointer: Any
    fields: dict[str, Field]


@dataclass(frozen=True)
class Vector:
    """An array of one dimension, or a row of one of two."""

    pointer: Any
    length: Any


@dataclass
class _Loop:
    again: Any
    end: Any


@dataclass
class Body:
    """The body of one function on its way into LLVM's language."""

    module: Module
    source: types.FunctionType
    target: ir.Function
    notes: dict[str, str]
    names: dict[str, Any] = field(default_factory=dict)
    loops: list[_Loop] = field(default_factory=list)

    def emit(self) -> None:
        """Translate it."""
        self.known: dict[str, Any] = self.source.__globals__  # pyright: ignore[reportAttributeAccessIssue]
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.source))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.head = ir.IRBuilder(self.target.append_basic_block("variables"))
        start = self.target.append_basic_block("start")
        self.builder: Any = ir.IRBuilder(start)
        self.numbers = Arithmetic(self.builder)
        for (name, note), value in zip(self.notes.items(), self.target.args, strict=True):
            if note in self.module.fields:
                self.names[name] = Record(value, self.module.fields[note])
            elif note == "Array":
                self.names[name] = Vector(value, None)
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
                self._assign(target, self.numbers.arithmetic(operator, self._any(target), self._any(value)))
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
        match target:
            case ast.Name(id=name):
                self._assign_name(name, value)
            case ast.Subscript():
                pointer = self._element(target)
                assert not isinstance(pointer, Vector)
                self.builder.store(self.numbers.cast(value, pointer.type.pointee), pointer)
            case _:
                raise self._refuse(target)

    def _assign_name(self, name: str, value: Any) -> None:
        if isinstance(value, Vector):
            if name in self.names:
                raise TypeError(f"{name} is assigned twice")
            self.names[name] = value
            return
        if name not in self.names:
            self.names[name] = self.head.alloca(value.type, name=name)
        self.builder.store(self.numbers.cast(value, self.names[name].type.pointee), self.names[name])

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        then, other, end = (self.target.append_basic_block(name) for name in ("then", "else", "end"))
        self.builder.cbranch(self.numbers.truth(self._any(test)), then, other)
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
        table = None
        match iterated:
            case ast.Call(func=ast.Name(id="range"), args=[stop]):
                first, last = ir.Constant(INT, 0), self.numbers.cast(self._any(stop), INT)
            case ast.Call(func=ast.Name(id="range"), args=[start, stop]):
                first, last = (self.numbers.cast(self._any(value), INT) for value in (start, stop))
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
        self.builder.cbranch(self.builder.icmp_signed("<", now, last), inside, end)
        self.builder.position_at_end(again)
        self.builder.store(self.builder.add(self.builder.load(counter), ir.Constant(INT, 1)), counter)
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
                return self._vector(node)
            case ast.Subscript(value=ast.Attribute(value=array, attr="shape"), slice=ast.Constant(value=1)):
                return self._part(array, 1)
            case ast.Subscript():
                found = self._element(node)
                return found if isinstance(found, Vector) else self.builder.load(found)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._any(operand)
                return (
                    self.builder.fsub(ir.Constant(REAL, -0.0), value) if value.type == REAL else self.builder.neg(value)
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.builder.not_(self.numbers.truth(self._any(operand)))
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
            return known if isinstance(known, Vector | Record) else self.builder.load(known)
        value = self.known.get(name)
        if isinstance(value, int | float):
            return constant_of(value)
        raise self._refuse(node)

    def _part(self, node: ast.expr, part: int) -> Any:
        """Return one of the integers that stand for a record's array."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(self.names.get(name), Record):
                record = self.names[name]
                place = PARTS * record.fields[attribute].place + part
                value = self.builder.load(self.builder.gep(record.pointer, [ir.Constant(INT, place)]))
                value.set_metadata("invariant.load", self.module.constant)
                return value
        raise self._refuse(node)

    def _field(self, node: ast.expr) -> Field:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(self.names.get(name), Record):
                found: Field = self.names[name].fields[attribute]
                return found
        raise self._refuse(node)

    def _base(self, node: ast.expr) -> Any:
        return self.builder.inttoptr(self._part(node, 0), self._field(node).type.as_pointer())

    def _vector(self, node: ast.expr) -> Vector:
        if self._field(node).dimensions != 1:
            raise self._refuse(node)
        return Vector(self._base(node), self._part(node, 2))

    def _element(self, node: ast.Subscript) -> Any:
        """Return the pointer to an element, or a row of an array of two dimensions."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=index) if isinstance(self.names.get(name), Vector):
                return self.builder.gep(self.names[name].pointer, [self.numbers.cast(self._any(index), INT)])
            case ast.Subscript(value=array, slice=ast.Tuple(elts=[row, column])):
                offset = self.builder.mul(self.numbers.cast(self._any(row), INT), self._part(array, 1))
                return self.builder.gep(
                    self._base(array), [self.builder.add(offset, self.numbers.cast(self._any(column), INT))]
                )
            case ast.Subscript(value=array, slice=index):
                number = self.numbers.cast(self._any(index), INT)
                if self._field(array).dimensions == 1:
                    return self.builder.gep(self._base(array), [number])
                columns = self._part(array, 1)
                return Vector(self.builder.gep(self._base(array), [self.builder.mul(number, columns)]), columns)
        raise self._refuse(node)

    def _compared(self, left: ast.expr, operators: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> Any:
        """Compare in a chain; all terms are evaluated, which does no harm here."""
        values = [self._any(left), *(self._any(other) for other in others)]
        result = None
        for operator, low, high in zip(operators, values[:-1], values[1:], strict=True):
            one = self.numbers.compare(operator, low, high)
            result = one if result is None else self.builder.and_(result, one)
        return result

    def _shortened(self, both: bool, values: Sequence[ast.expr]) -> Any:
        """Evaluate `and` or `or`, only as far as it is undecided."""
        place = self.head.alloca(TRUTH)
        end = self.target.append_basic_block("decided")
        for number, value in enumerate(values):
            found = self.numbers.truth(self._any(value))
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
        then, other, end = (self.target.append_basic_block(name) for name in ("then", "else", "end"))
        self.builder.cbranch(self.numbers.truth(self._any(test)), then, other)
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
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]) if isinstance(
                self.names.get(name), Vector
            ):
                return self.names[name].length
            case ast.Call(func=ast.Name(id="len"), args=[array]):
                return self._part(array, 2)
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in BUILTIN:
                return self.numbers.builtin(name, [self._any(value) for value in arguments])
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                callee = self.known.get(name)
                if isinstance(callee, types.FunctionType):
                    target = self.module.function(callee)
                    return self.builder.call(
                        target, [self._argument(a, p.type) for a, p in zip(arguments, target.args, strict=True)]
                    )
        raise self._refuse(node)

    def _argument(self, node: ast.expr, kind: ir.Type) -> Any:
        value = self._any(node)
        return value.pointer if isinstance(value, Vector | Record) else self.numbers.cast(value, kind)
