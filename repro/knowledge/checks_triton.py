"""Checks of Python: kernels in Triton and the code that launches them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from repro.knowledge.finding import Finding, called, calls, keyword, name

LOW = ("tl.float16", "tl.bfloat16", "tl.float8e4nv", "tl.float8e5")
ATOMICS = ("tl.atomic_add", "tl.atomic_max", "tl.atomic_min", "tl.atomic_cas", "tl.atomic_xchg")
STORES = ("tl.store", *ATOMICS)
Kernel = ast.FunctionDef


def run(tree: ast.Module) -> Iterator[Finding]:
    """Yield every finding in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _is_kernel(node):
            for check in CHECKS:
                yield from check(node)
    for check_module in MODULE_CHECKS:
        yield from check_module(tree)


def _is_kernel(node: ast.FunctionDef) -> bool:
    if any("jit" in name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list):
        return True
    return any(called(each).startswith("tl.") for each in ast.walk(node))


def _numbers(node: ast.AST) -> list[float]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, int | float)]


def _ranged(kernel: Kernel) -> set[str]:
    """Return the names with values that come, through assignments, from a tl.arange."""
    names: set[str] = set()
    assigns = [n for n in ast.walk(kernel) if isinstance(n, ast.Assign) and len(n.targets) == 1]
    for _ in range(3):
        for each in sorted(assigns, key=lambda n: n.lineno):
            target = name(each.targets[0])
            inner = each.value
            if isinstance(inner, ast.Call) and called(inner) in ("tl.load", "tl.sum", "tl.max", "tl.dot"):
                continue
            if target and (any(calls(inner, "tl.arange")) or _names(inner) & names):
                names.add(target)
    return names


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def masks(kernel: Kernel) -> Iterator[Finding]:
    """Find blocks of addresses without a mask."""
    ranged = _ranged(kernel)
    blocks = any(calls(kernel, "tl.make_block_ptr", "tl.make_tensor_descriptor"))
    for call in calls(kernel, "tl.load", *STORES):
        if not call.args or blocks:
            continue
        position = {"tl.load": 1}.get(called(call), 2)
        spread = any(calls(call.args[0], "tl.arange")) or _names(call.args[0]) & ranged
        if spread and keyword(call, "mask", position) is None:
            what = (
                f"{called(call)} of a block of addresses has no mask: it is right only if the block divides the extent."
            )
            yield Finding("doubt", call.lineno, what, "padding-and-boundary-masks")
            return


def fills(kernel: Kernel) -> Iterator[Finding]:
    """Find masked loads that feed a reduction or a product without a neutral element.

    Names are followed in the order of lines: a value computed from a load stays so until a tl.where or another value.
    """
    state: dict[str, tuple[ast.Call, bool]] = {}
    page = "padding-and-boundary-masks"
    statements = [n for n in ast.walk(kernel) if isinstance(n, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)]
    for node in sorted(statements, key=lambda n: n.lineno):
        for use in calls(node, "tl.sum", "tl.max", "tl.min", "tl.dot"):
            cleaned = any(calls(use, "tl.where"))
            for each in sorted({n for arg in use.args for n in _names(arg)} & set(state)) if not cleaned else []:
                load, direct = state[each]
                other = keyword(load, "other", 2)
                if other is None:
                    what = f"`{each}` is a masked load without `other`: {called(use)} includes undefined lanes."
                    yield Finding("fault", load.lineno, what, page)
                elif called(use) == "tl.max" and direct and _numbers(other) == [0] and not any(calls(use, "tl.abs")):
                    what = f"`{each}` is padded with 0 for tl.max: a row of negative values gets 0. Pad with -inf."
                    yield Finding("fault", load.lineno, what, page)
        if isinstance(node, ast.Assign | ast.AugAssign):
            _follow(node, state)


def _follow(node: ast.Assign | ast.AugAssign, state: dict[str, tuple[ast.Call, bool]]) -> None:
    """Record whether an assignment's target is a masked load, computed from one, or neither."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name) or node.value is None:
        return
    loads = [call for call in calls(node.value, "tl.load") if keyword(call, "mask", 1) is not None]
    before = state.pop(target.id, None)
    if any(calls(node.value, "tl.where", "tl.sum", "tl.max", "tl.min", "tl.dot")):
        return
    inner = [state[each] for each in sorted(_names(node.value) & set(state))]
    if loads:
        state[target.id] = (loads[0], isinstance(node.value, ast.Call))
    elif inner:
        state[target.id] = (inner[0][0], False)
    elif before and (isinstance(node, ast.AugAssign) or target.id in _names(node.value)):
        state[target.id] = (before[0], False)


def accumulators(kernel: Kernel) -> Iterator[Finding]:
    """Find accumulators in 16 bits."""
    for node in ast.walk(kernel):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        for call in calls(node.value, "tl.zeros", "tl.full"):
            kind = keyword(call, "dtype", 1 if called(call) == "tl.zeros" else 2)
            grown = any(isinstance(n, ast.AugAssign) and name(n.target) == node.targets[0].id for n in ast.walk(kernel))
            if kind is not None and name(kind) in LOW and grown:
                what = f"`{node.targets[0].id}` adds up in {name(kind)}: keep sums in tl.float32 and cast at the store."
                yield Finding("fault", node.lineno, what, "bf16-accumulation")


def ranges(kernel: Kernel) -> Iterator[Finding]:
    """Find tl.arange over a length that is not a power of two or not a constant."""
    plain = {arg.arg for arg in (*kernel.args.args, *kernel.args.kwonlyargs) if not _constexpr(arg)}
    for call in calls(kernel, "tl.arange"):
        low, high = (call.args + [None, None])[:2]
        if isinstance(low, ast.Constant) and isinstance(high, ast.Constant):
            extent = high.value - low.value if isinstance(high.value, int) and isinstance(low.value, int) else 1
            if extent < 1 or extent & (extent - 1):
                what = (
                    f"tl.arange over {extent} elements: the length must be a power of two. Use the next one and a mask."
                )
                yield Finding("fault", call.lineno, what, "error-shape-constexpr")
        elif isinstance(high, ast.Name) and high.id in plain:
            what = f"tl.arange ends at `{high.id}`, not a tl.constexpr parameter: shapes are compile-time constants."
            yield Finding("fault", call.lineno, what, "error-shape-constexpr")


def _constexpr(arg: ast.arg) -> bool:
    return arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation)


def dots(kernel: Kernel) -> Iterator[Finding]:
    """Find tl.dot without an explicit precision for fp32 operands."""
    for call in calls(kernel, "tl.dot"):
        if keyword(call, "input_precision", 3) is None and keyword(call, "allow_tf32") is None:
            cast = any(isinstance(n, ast.Attribute) and n.attr in ("float16", "bfloat16") for n in ast.walk(kernel))
            if not cast:
                what = "tl.dot has no input_precision: fp32 operands are multiplied in tf32, with 10 bits of mantissa."
                yield Finding("doubt", call.lineno, what, "tf32-behaviour")
                return


def programs(tree: ast.Module) -> Iterator[Finding]:
    """Find stores by every program to the same addresses. A function that kernels call gets its addresses from them."""
    helpers = {called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for kernel in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _is_kernel(n)]:
        stores = list(calls(kernel, *STORES))
        if stores and kernel.decorator_list and kernel.name not in helpers and not any(calls(kernel, "tl.program_id")):
            what = "The kernel stores without using tl.program_id: every program writes the same addresses."
            yield Finding("doubt", stores[0].lineno, what, "races-and-synchronisation")


def exponents(kernel: Kernel) -> Iterator[Finding]:
    """Find a softmax without the row's maximum."""
    exps = list(calls(kernel, "tl.exp", "tl.exp2", "tl.math.exp", "tl.math.exp2"))
    maxima = any(calls(kernel, "tl.max", "tl.maximum", "tl.softmax"))
    divides = any(isinstance(n, ast.Div) for n in ast.walk(kernel))
    if exps and any(calls(kernel, "tl.sum")) and divides and not maxima:
        what = "Exponentials are summed and divided without subtracting the maximum: exp overflows fp32 above 88.7."
        yield Finding("fault", exps[0].lineno, what, "softmax-online")


def variances(tree: ast.AST) -> Iterator[Finding]:
    """Find mean(x*x) - mean*mean, and roots of a variance without an epsilon."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _square(node.right):
            left = ast.unparse(node.left).lower()
            if any(word in left for word in ("sq", "sum2", "x2", "ss", "square", "* x", "pow")):
                what = "A variance as mean of squares minus square of mean cancels if the mean is large."
                yield Finding("doubt", node.lineno, what, "welford-and-variance")
        if called(node).rsplit(".", 1)[-1] in ("rsqrt", "sqrt_rn") and isinstance(node, ast.Call) and node.args:
            inner = ast.unparse(node.args[0]).lower()
            if "var" in inner and "+" not in inner:
                what = "The root of a variance is taken without an epsilon: a constant row divides by zero."
                yield Finding("doubt", node.lineno, what, "numerics-pitfalls")


def _square(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return ast.unparse(node.left) == ast.unparse(node.right)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _numbers(node.right) == [2]


def grids(tree: ast.Module) -> Iterator[Finding]:
    """Find a grid by floor division."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and name(node.targets[0]).lower().endswith("grid"):
            for each in ast.walk(node.value):
                if isinstance(each, ast.BinOp) and isinstance(each.op, ast.FloorDiv) and not _rounds_up(each):
                    what = "The grid is rounded down: the last partial block is never launched. Use triton.cdiv."
                    yield Finding("doubt", each.lineno, what, "padding-and-boundary-masks")


def _rounds_up(node: ast.BinOp) -> bool:
    return isinstance(node.left, ast.BinOp) or (
        isinstance(node.left, ast.UnaryOp) and isinstance(node.left.op, ast.USub)
    )


def atomics(tree: ast.Module) -> Iterator[Finding]:
    """Find atomic sums into memory that was not set to zero."""
    if any(calls(tree, "tl.atomic_add")) and not any(calls(tree, "torch.zeros", "torch.zeros_like")):
        zeroed = any(isinstance(n, ast.Attribute) and n.attr in ("zero_", "new_zeros", "fill_") for n in ast.walk(tree))
        for call in calls(tree, "torch.empty", "torch.empty_like"):
            if not zeroed:
                what = "A buffer from torch.empty and a kernel with tl.atomic_add: sums start from old memory contents."
                yield Finding("doubt", call.lineno, what, "atomics-and-determinism")


def strides(tree: ast.Module) -> Iterator[Finding]:
    """Find launches that pass neither strides nor a contiguous tensor."""
    launches = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)
    ]  # kernel[grid](...)
    said = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    if launches and not said & {"stride", "strides", "contiguous", "is_contiguous"}:
        what = "A kernel is launched without strides or contiguous(): a transposed input would be misread."
        yield Finding("doubt", launches[0].lineno, what, "block-pointers-and-strides")


CHECKS = (masks, fills, accumulators, ranges, dots, exponents)
MODULE_CHECKS = (programs, grids, atomics, strides, variances)
