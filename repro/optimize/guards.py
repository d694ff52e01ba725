"""Ways in which a rewrite keeps the original kernel beside its own, and chooses at the launch."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

from repro.optimize.kernel_source import Edit, Function, KernelSource, Launch, NotApplicable
from repro.optimize.knobs import append_arguments


def every_kernel(change: Callable[[KernelSource, Function], str]) -> Callable[[KernelSource], str]:
    """Return the rewrite that makes a change to every kernel with a launch that it fits.

    It raises NotApplicable if the change fits none.
    """

    @functools.wraps(change)
    def rewrite(source: KernelSource) -> str:
        text, why = source.text, "there is no kernel"
        for name in [launch.kernel for launch in source.launches]:
            try:
                now = KernelSource(text)
                text = change(now, now.kernels[name])
            except NotApplicable as error:
                why = str(error)
        if text == source.text:
            raise NotApplicable(why)
        return text

    return rewrite


def every_launch(change: Callable[[KernelSource, Function, Launch], str]) -> Callable[[KernelSource], str]:
    """As `every_kernel`, for a change that fits only a kernel with one launch."""

    @every_kernel
    @functools.wraps(change)
    def rewrite(source: KernelSource, kernel: Function) -> str:
        return change(source, *source.only(kernel.name))

    return rewrite


def guarded(
    source: KernelSource, kernel: str, suffix: str, edits: list[Edit], guard: str, more: str = "", *further: Edit
) -> str:
    """Return the source with an edited copy of a kernel, launched where a guard holds, and else the original.

    more: further arguments of the launch. further: other edits, as of a parameter that the original gets too, unused.
    """
    function, launch = source.only(kernel)
    new = source.fresh(f"{kernel}_{suffix}")
    text = source.between(edits, source.top(function), source.end(function)).replace(f"def {kernel}(", f"def {new}(", 1)
    placed = [
        *further,
        source.after(function, f"\n\n\n{text}"),
        source.replace(launch.callee, f"({new} if {guard} else {kernel})"),
    ]
    if more:
        placed.append(append_arguments(source, launch, more))
    return source.apply(placed)


def chosen(launch: Launch) -> bool:
    """Return whether a launch chooses between kernels already."""
    return isinstance(launch.call.func, ast.Subscript) and isinstance(launch.call.func.value, ast.IfExp)


def plain(kernel: Function, launch: Launch) -> bool:
    """Return whether a launch chooses no kernel, and its kernel has no parameter with a default or by name alone."""
    return not (chosen(launch) or kernel.args.defaults or kernel.args.kwonlyargs)


def statement_of(launch: Launch) -> ast.Expr:
    """Return the statement that is a launch."""
    for node in ast.walk(launch.function):
        if isinstance(node, ast.Expr) and node.value is launch.call:
            return node
    raise NotApplicable("the launch is no statement of its own")
