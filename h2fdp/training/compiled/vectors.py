"""Processor instructions of the kernels: above all the two products that nearly all of a step's time goes into.

`ROWS` rows of one matrix meet `WIDE` rows of another at once, along their width: each number that is read is used
several times. LLVM's own vectoriser keeps to one row here (it must rule out that rows overlap), which took a third
longer for sums of products and two and a half times as long for sums of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic

# Rows that are computed at once. Eight halve the way of models and gradients from the second cache to the first, which
# took a sixth of a step; their 8 x 2 sums of 16 numbers need AVX-512. 4 x 2 of 8 fit into sixteen registers.
_LANES, ROWS = (16, 8) if binding.get_host_cpu_features().get("avx512f") else (8, 4)
_CACHE_LINE = 64  # bytes
WIDE = 2  # rows of the other matrix that they meet; three and five were slower
cgutils: Any = untyped
_FLOAT, _INDEX, _SMALL = ir.FloatType(), ir.IntType(64), ir.IntType(32)


class _Matrix:
    """A matrix (rows, width) of float32, C-contiguous, in code that is being written."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.data = builder, array.data
        self.width = cgutils.unpack_tuple(builder, array.shape, 2)[1]

    def row(self, number: ir.Value) -> ir.Value:
        """The address at which a row begins."""
        return self.builder.gep(self.data, [self.builder.mul(number, self.width)])

    def rows(self, first: ir.Value, count: int) -> list[ir.Value]:
        """The addresses at which some neighbouring rows begin."""
        return [self.row(self.builder.add(first, _INDEX(each))) for each in range(count)]


class _Numbers:
    """Code for so many neighbouring numbers at once."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self._builder, self.lanes = builder, lanes
        self.type = ir.VectorType(_FLOAT, lanes) if lanes > 1 else _FLOAT
        self.zero = ir.Constant(self.type, [0.0] * lanes if lanes > 1 else 0.0)
        name = f"llvm.fmuladd.v{lanes}f32" if lanes > 1 else "llvm.fmuladd.f32"
        kind = ir.FunctionType(self.type, [self.type] * 3)
        self._fused = cgutils.get_or_insert_function(builder.module, kind, name)

    def load(self, row: ir.Value, at: ir.Value) -> ir.Value:
        return self._builder.load(self._place(row, at), align=4)

    def store(self, value: ir.Value, row: ir.Value, at: ir.Value) -> None:
        self._builder.store(value, self._place(row, at), align=4)

    def fused(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """A b + c."""
        return self._builder.call(self._fused, [a, b, c])

    def alike(self, number: ir.Value) -> ir.Value:
        """One number in all lanes."""
        if self.lanes == 1:
            return number
        nothing = ir.Constant(self.type, ir.Undefined)
        one = self._builder.insert_element(nothing, number, _SMALL(0))
        return self._builder.shuffle_vector(one, nothing, _mask([0] * self.lanes))

    def sum(self, value: ir.Value) -> ir.Value:
        """The sum of all lanes, half by half."""
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            nothing = ir.Constant(value.type, ir.Undefined)
            halves = [
                self._builder.shuffle_vector(value, nothing, _mask(range(first, first + lanes))) for first in (0, lanes)
            ]
            value = self._builder.fadd(*halves)
        return value if self.lanes == 1 else self._builder.extract_element(value, _SMALL(0))

    def _place(self, row: ir.Value, at: ir.Value) -> ir.Value:
        return self._builder.bitcast(self._builder.gep(row, [at]), self.type.as_pointer())


def _mask(lanes: Any) -> ir.Constant:
    chosen = list(lanes)
    return ir.Constant(ir.VectorType(_SMALL, len(chosen)), chosen)


def _along(builder: ir.IRBuilder, width: ir.Value, body: Callable[[_Numbers, ir.Value], None]) -> None:
    """`body` for all numbers of a row: whole registers first, then quarters of one, then one by one."""
    begin: ir.Value = _INDEX(0)
    for lanes in (_LANES, 4, 1):
        numbers = _Numbers(builder, lanes)
        end = builder.sub(width, builder.urem(width, _INDEX(lanes)))
        with cgutils.for_range_slice(builder, begin, end, _INDEX(lanes), _INDEX) as (at, _):
            body(numbers, at)
        begin = end


def _dot_products(together: int) -> Any:
    def made(_typing: Any, rows: Any, weights: Any, out: Any, first: Any) -> Any:
        """out[:, first:first + together] = rows (ROWS, K) times weights[first:first + together], transposed."""

        def written(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            matrices = zip(signature.args[:3], args[:3], strict=True)
            left, right, target = (_Matrix(context, builder, kind, value) for kind, value in matrices)
            ours, theirs = left.rows(_INDEX(0), ROWS), right.rows(args[3], together)
            sums: dict[int, list[list[ir.Value]]] = {}
            for lanes in (_LANES, 4, 1):
                zero = _Numbers(builder, lanes).zero
                sums[lanes] = [[cgutils.alloca_once_value(builder, zero) for _ in theirs] for _ in ours]
                for place in (place for row in sums[lanes] for place in row):
                    builder.store(zero, place)  # the memory is the function's: it is there at the next call too

            def body(numbers: _Numbers, at: ir.Value) -> None:
                values = [numbers.load(row, at) for row in ours]
                for t, row in enumerate(theirs):
                    weight = numbers.load(row, at)
                    for r, value in enumerate(values):
                        place = sums[numbers.lanes][r][t]
                        builder.store(numbers.fused(weight, value, builder.load(place)), place)

            _along(builder, left.width, body)
            for r, row in enumerate(target.rows(_INDEX(0), ROWS)):
                for t in range(together):
                    parts = [_Numbers(builder, lanes).sum(builder.load(sums[lanes][r][t])) for lanes in sums]
                    total = builder.fadd(builder.fadd(parts[0], parts[1]), parts[2])
                    builder.store(total, builder.gep(row, [builder.add(args[3], _INDEX(t))]))
            return context.get_dummy_value()

        return types.void(rows, weights, out, first), written

    return intrinsic(made)


def _row_sums(together: int) -> Any:
    def made(_typing: Any, rows: Any, factors: Any, out: Any, first: Any) -> Any:
        """out[first:first + together] += factors[:, first:first + together], transposed, times rows (ROWS, K)."""

        def written(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            matrices = zip(signature.args[:3], args[:3], strict=True)
            left, scales, target = (_Matrix(context, builder, kind, value) for kind, value in matrices)
            ours, theirs = left.rows(_INDEX(0), ROWS), target.rows(args[3], together)
            single = [
                [
                    builder.load(builder.gep(row, [builder.add(args[3], _INDEX(t))]))
                    for row in scales.rows(_INDEX(0), ROWS)
                ]
                for t in range(together)
            ]

            def body(numbers: _Numbers, at: ir.Value) -> None:
                values = [numbers.load(row, at) for row in ours]
                for row, scaled in zip(theirs, single, strict=True):
                    total = numbers.load(row, at)
                    for scale, value in zip(scaled, values, strict=True):
                        total = numbers.fused(numbers.alike(scale), value, total)
                    numbers.store(total, row, at)

            _along(builder, left.width, body)
            return context.get_dummy_value()

        return types.void(rows, factors, out, first), written

    return intrinsic(made)


def _fetch(_typing: Any, rows: Any, number: Any) -> Any:
    """Ask for a row of a matrix of any kind, so that it is in the second cache when its turn comes."""

    def written(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        length = cgutils.unpack_tuple(builder, array.strides, 2)[0]
        begin = builder.add(builder.ptrtoint(array.data, _INDEX), builder.mul(args[1], length))
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(ir.IntType(8)), _SMALL, _SMALL, _SMALL])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        with cgutils.for_range_slice(builder, _INDEX(0), length, _INDEX(_CACHE_LINE), _INDEX) as (at, _):
            place = builder.inttoptr(builder.add(begin, at), ir.PointerType(ir.IntType(8)))
            builder.call(ask, [place, _SMALL(0), _SMALL(2), _SMALL(1)])  # to read, into the second cache, of data
        return context.get_dummy_value()

    return types.void(rows, number), written


def _view(shape: int) -> Any:
    def made(_typing: Any, vector: Any, first: Any, *sizes: Any) -> Any:
        """The numbers from the first-th on, C-contiguous, of these sizes; references to them are not counted.

        Slices and `reshape` do the same, and took half of the time that compiling took. The sizes must fit.
        """
        kind = types.Array(vector.dtype, shape, "C")

        def written(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            whole = context.make_array(signature.args[0])(context, builder, args[0])
            array = context.make_array(kind)(context, builder)
            lengths = [
                context.cast(builder, size, given, types.intp) for size, given in zip(args[2:], sizes, strict=True)
            ]
            itemsize = _INDEX(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
            strides = [itemsize]
            for length in reversed(lengths[1:]):
                strides.insert(0, builder.mul(strides[0], length))
            context.populate_array(
                array,
                data=builder.gep(whole.data, [context.cast(builder, args[1], first, types.intp)]),
                shape=lengths,
                strides=strides,
                itemsize=itemsize,
                meminfo=None,
                parent=None,
            )
            return array._getvalue()

        return kind(vector, first, *sizes), written

    return made


def _part(_typing: Any, vector: Any, first: Any, length: Any) -> Any:
    """`vector[first:first + length]`."""
    return _view(1)(_typing, vector, first, length)


def _matrix(_typing: Any, vector: Any, first: Any, rows: Any, width: Any) -> Any:
    """`vector[first:first + rows * width]` as a matrix (rows, width)."""
    return _view(2)(_typing, vector, first, rows, width)


def _borrowed(_typing: Any, arrays: Any) -> Any:
    """A tuple of the arrays and numbers in which references to the arrays are not counted.

    Counting took a twentieth of a step, and threads would wait for each other's counts of what they share. The caller
    must hold the arrays as long as any of these is used.
    """

    def written(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        result = args[0]
        for number, kind in enumerate(signature.args[0].types):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, builder.extract_value(args[0], number))
                array.meminfo = ir.Constant(array.meminfo.type, None)
                array.parent = ir.Constant(array.parent.type, None)
                result = builder.insert_value(result, array._getvalue(), number)
        return result

    return arrays(arrays), written


dot_products, dot_products_of_one = _dot_products(WIDE), _dot_products(1)
row_sums, row_sums_of_one = _row_sums(WIDE), _row_sums(1)
fetch: Any = intrinsic(_fetch)
part: Any = intrinsic(_part)
matrix: Any = intrinsic(_matrix)
borrowed: Any = intrinsic(_borrowed)
