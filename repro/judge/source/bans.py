"""Bans: operations for which a solution is rejected without being run, each with its line number.

They are a tripwire: a string that is assembled at run time gets past them. They exist so that a plain attack is
rejected with its line number, without a measurement. Other attacks are stopped by keeping seeds, limits, expected
values and the verdict out of the worker's process.

The list is short, so that it never matches an honest kernel. Each entry, and why it is banned:
- writing to attributes of torch, triton, time, builtins, sys, os, json: the worker reads clocks, waits for the device
  and speaks to the judge through them. Flags that tune a library stay open (`_OPEN`);
- importing repro or __main__, finding them in sys.modules, writing to sys.modules: the worker's own program;
- sys._getframe, f_back, tb_frame, inspect.stack and similar: the callers' variables, clocks among them;
- gc.get_objects and similar, sys.settrace, sys.setprofile: the same objects by another way;
- ptrace, process_vm_readv, process_vm_writev, mprotect, /proc/*/mem: memory of the judge, or native code in the worker;
- LD_PRELOAD: code in the next process; os.kill of os.getppid(): ending the judge's processes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

from repro.judge.source.names import Source, imports, parsed, text

_PROTECTED = ("torch", "triton", "time", "builtins", "sys", "os", "json")
_MODULES = {*_PROTECTED} - {"triton"}  # below such a name nothing is a flag; torch's compiler has flags named triton
_OPEN = re.compile(r"torch\.(backends|_\w+\.config|_inductor\.config|utils\._config\w*)\.|triton\.knobs\."
                  r"|torch\.utils\.cpp_extension\.\w+$"
                  r"|torch\.(compiler\.config|fx\.experimental\._config)\.[^.]+$"
                  r"|sys\.(path|argv|dont_write_bytecode)$")  # fmt: skip
_PEEKS = ("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "threading.settrace",
         "threading.setprofile", "inspect.stack", "inspect.currentframe", "inspect.getouterframes", "inspect.trace",
         "gc.get_objects", "gc.get_referrers", "gc.get_referents")  # fmt: skip
_FRAMES = {"f_back", "tb_frame"}
_NATIVE = {"ptrace", "process_vm_readv", "process_vm_writev", "mprotect"}
_NATIVE_CALL = re.compile(rf"\b({'|'.join(sorted(_NATIVE))})\s*\(")
_MEMORY = re.compile(r"/proc/[\w{}%$*-]+(/task/[\w{}%$*-]+)?/mem(?!\w)")
_UPDATES = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__"}
UNREADABLE = "the source is nested too deeply or is too long to be checked"
_JUDGE = re.compile(r"(repro|__main__)(\.|$)")


def _protected(path: str) -> str:
    """Return the protected attribute that a dotted name writes to, or ""."""
    plain = path.replace(".__dict__", "")
    first, *names = plain.split(".")
    return plain if first in _PROTECTED and names and not (_OPEN.match(plain) and _MODULES.isdisjoint(names)) else ""


def _assigned(source: Source, node: ast.AST) -> str:
    """Return the protected attribute that a node assigns to or deletes, or ""."""
    match node:
        case ast.Attribute(_, _, ast.Store() | ast.Del()):
            path = source.dotted(node)
            return "" if path == "os.environ" and id(node) in source.merged else _protected(path)
        case ast.Subscript(value, key, ast.Store() | ast.Del()):
            owner = source.dotted(value)
            if owner in ("sys.modules", "builtins"):
                return f"{owner}[...]"
            return _protected(f"{owner}.{text(key) or '?'}") if owner.endswith(".__dict__") else ""
    return ""


def _set_by_call(source: Source, node: ast.AST) -> str:
    """Return the protected attribute that a call sets, deletes or patches, or ""."""
    match node:
        case ast.Call(ast.Attribute(value, "__setattr__" | "__delattr__"), [first, *rest]):
            if text(first):
                return _protected(f"{source.dotted(value)}.{text(first)}")
            return _protected(f"{source.dotted(first)}.{text(rest[0]) or '?'}") if rest else ""
        case ast.Call(ast.Attribute(value, attr)) if attr in _UPDATES and (owner := source.dotted(value)):
            return f"{owner}[...]" if owner == "sys.modules" else _protected(owner + ".?") * owner.endswith(".__dict__")
        case ast.Call(func, [first, *rest]):
            path = source.dotted(func).removeprefix("builtins.")
            if path.endswith(("mock.patch", "mock.patch.dict")):
                return _patched(text(first) or source.dotted(first), items=path.endswith(".dict"))
            if path in ("setattr", "delattr"):
                return _protected(f"{source.dotted(first)}.{_attribute(rest)}")
            if path.endswith(("mock.patch.object", "mock.patch.multiple")):
                return _protected(f"{text(first) or source.dotted(first)}.{_attribute(rest)}")
    return ""


def _attribute(arguments: list[ast.expr]) -> str:
    """Return the name of an attribute that a call is given in second place; `?` if it is not constant."""
    return text(arguments[0]) or "?" if arguments else "?"


def _patched(target: str, *, items: bool) -> str:
    """Return the protected attribute that a patch of `target` replaces, or "". items: it replaces its items alone."""
    if target == "sys.modules":
        return "sys.modules[...]"
    if target == "os.environ" and items:
        return ""
    return _protected(target + ".?" * target.endswith(".__dict__"))


def _writes(source: Source, node: ast.AST) -> str:
    written = _assigned(source, node) or _set_by_call(source, node)
    return f"writes to {written}" if written else ""


def _imports(source: Source, node: ast.AST) -> str:
    for path in imports(node):
        if _JUDGE.match(path):
            return f"imports {path.partition('.')[0]}"
        if path in _PEEKS:
            return f"uses {path}"
    return ""


def _reaches(source: Source, node: ast.AST) -> str:
    """Return the callers' variables, or the worker's own program, that a node reaches for."""
    if isinstance(node, ast.Attribute | ast.Call) and (path := source.dotted(node)) in _PEEKS:
        return f"uses {path}"
    if isinstance(node, ast.Subscript | ast.Call) and _JUDGE.match(path := source.dotted(node)):
        return f"reaches for {path}"
    return f"uses {node.attr}" if isinstance(node, ast.Attribute) and node.attr in _FRAMES | _NATIVE else ""


def _signals(source: Source, node: ast.AST) -> str:
    if not isinstance(node, ast.Call) or source.dotted(node.func) not in ("os.kill", "os.killpg"):
        return ""
    parts = (part for argument in node.args for part in ast.walk(argument))
    return "signals its parent" if any(source.dotted(part) == "os.getppid()" for part in parts) else ""


def _names(source: Source, node: ast.AST) -> str:
    """Return what a string of the program names: native calls, memory of a process, the loader's variable."""
    said = "" if id(node) in source.docstrings else text(node)
    if said in _NATIVE:
        return f"names {said}"
    if "#include" in said and (call := _NATIVE_CALL.search(said)):
        return f"names {call[1]}"
    if memory := _MEMORY.search(said):
        return f"names {memory[0]}"
    return "names LD_PRELOAD" if re.fullmatch(r"LD_PRELOAD(=.*)?", said) else ""


_Rule = Callable[[Source, ast.AST], str]
_RULES: tuple[_Rule, ...] = (_writes, _imports, _reaches, _signals, _names)


def bans(path: Path | None) -> list[str]:
    """Return the banned operations of a file, such as `line 12: writes to torch.cuda.Event.record`.

    A file that is not Python has none: it fails when it is imported.
    """
    source = parsed(path)
    if source is None:
        return []
    banned: dict[str, int] = {}
    try:
        for node in source.nodes():
            if reason := next(filter(None, (rule(source, node) for rule in _RULES)), ""):
                line = getattr(node, "lineno", 0)
                banned.setdefault(f"line {line}: {reason}", line)
    except RecursionError:
        banned[UNREADABLE] = 0
    return sorted(banned, key=banned.__getitem__)
