"""The command line of the agent study: its arguments, and the design that they make."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from repro import config
from repro.errors import PrerequisiteError, UsageError
from repro.problems import catalogue
from repro.studies.agent import controls, design, folder
from repro.studies.agent import prices as tables
from repro.studies.agent.agent import Agent
from repro.studies.agent.design import AGENTS, ARMS, DEFAULTS, KNOWLEDGE, MODES, Budgets, Design, Pace, Unit
from repro.studies.agent.folder import Folder
from repro.system import foreign, importing
from repro.system.digest import sha256

# Most bytes of a script.
_MOST_BYTES = 64 << 20
SHIPPED = ("oracle", "nop")
# An arm's name is a folder in the bundle and a part of row ids.
ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "the Anthropic API needs a key"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "Bedrock needs a token"),
}
_SITTING = {
    "wall_s": ("seconds", float), "turns": ("replies of the model", int), "usd": ("USD by the price table", float),
    "tokens": ("tokens without reads from the prompt cache", int), "kb_calls": ("calls of knowledge tools", int),
}  # fmt: skip
# What `--budget` bounds: name -> (meaning, type).
BUDGETS = {
    name: (f"{unit} of one sitting (default: {getattr(DEFAULTS['problem'], name):g}; in a suite "
           f"{getattr(DEFAULTS['suite'], name):g}; 0: none)", kind)
    for name, (unit, kind) in _SITTING.items()
} | {"run_usd": ("USD of the whole run (default: none)", float)}  # fmt: skip


def add(run: argparse.ArgumentParser) -> None:
    """Add the arguments of `repro run`."""
    run.add_argument("--agent", choices=(*SHIPPED, *AGENTS), default=None,
                     help="what writes the solutions (default: oracle; of bedrock: claude-code)")  # fmt: skip
    run.add_argument("--repeats", type=int, default=1, help="how often each problem and arm is run")
    run.add_argument(
        "--solutions", action="append", default=[], metavar="ARM=DIR",
        help="judge the solutions in a folder as this arm, in place of an agent's (repeatable)",
    )  # fmt: skip
    run.add_argument(
        "--controls", default="", metavar="'A B'",
        help=f"arms beside the others: of {', '.join(controls.EVERY)}, or none (default: nop with the oracle; "
        f"{' and '.join(controls.TORCH)} with an agent or --solutions at full size on a GPU)",
    )  # fmt: skip
    study = run.add_argument_group("with an agent (docs/agent-study.md)")
    study.add_argument("--arms", default="", metavar="'A B'", help=f"of {', '.join(ARMS)} (default: baseline with_kb)")
    study.add_argument("--kb", default="local", metavar="KB",
                       help=f"the knowledge base of the arm with_kb: {', '.join(KNOWLEDGE)}, or the address of an MCP "
                       "server (default: local)")  # fmt: skip
    study.add_argument(
        "--mode",
        choices=MODES,
        default="problem",
        help="problem: one sitting a problem; suite: all problems in one sitting",
    )
    study.add_argument(
        "--model",
        default="",
        help="the model, or PROVIDER/MODEL for any provider of Inspect "
        f"(default: {config.API_MODEL}; on Bedrock $ANTHROPIC_MODEL or {config.BEDROCK_MODEL})",
    )
    study.add_argument(
        "--upstream",
        default="",
        metavar="U",
        help="anthropic, bedrock, or replay:PATH, a script or a folder of them (default: anthropic)",
    )
    study.add_argument(
        "--jobs",
        type=int,
        default=None,
        help="agents at once (default: 1); without a GPU also jobs at once (default: as many containers as fit); "
        "a GPU runs one job",
    )
    study.add_argument(
        "--optimize", action="store_true",
        help="let the agents of every arm use `repro optimize`, the search for a faster kernel (default: none may)",
    )  # fmt: skip
    study.add_argument("--check", action="store_true", help="say what is missing and start nothing")


def agent(args: argparse.Namespace) -> str:
    """Return the agent that writes the solutions."""
    return str(args.agent or ("claude-code" if args.upstream == "bedrock" else "oracle"))


def folders(args: argparse.Namespace) -> list[Folder]:
    """Return the arms whose solutions lie in folders. Raises UsageError."""
    if not args.solutions:
        return []
    flags = {"--agent": args.agent, "--arms": args.arms, "--upstream": args.upstream, "--repeats": args.repeats != 1}
    for flag, given in flags.items():
        if given:
            why = "each file of a problem is a repeat" if flag == "--repeats" else "its solutions exist already"
            raise UsageError(f"--solutions does not go with {flag}", why)
    found = {}
    for text in args.solutions:
        name, equals, path = text.partition("=")
        if not equals or not ARM.fullmatch(name) or not path:
            raise UsageError(f"--solutions {text}", "it takes ARM=DIR, and a name has letters, digits, '.', '_', '-'")
        if name in found or name in controls.EVERY:
            why = "it is given twice" if name in found else "it is the name of a control"
            raise UsageError(f"--solutions {text}: no arm can be named {name}", why)
        found[name] = folder.scan(name, Path(path))
    return list(found.values())


def chosen_controls(args: argparse.Namespace, device: str, size: str) -> list[Agent]:
    """Return the controls of a run: those asked for, or the usual ones. Raises UsageError.

    TF32 exists on a GPU alone, and only a time at full size says what it buys.
    """
    named = _names("control", args.controls, (*controls.EVERY, "none"))
    if "none" in named and len(named) > 1:
        raise UsageError(f"no control {', '.join(named)}", "none stands alone")
    source = "" if args.solutions else agent(args)
    if not named:
        timed = device == "cuda" and size == "full" and args.timing
        named = ["nop"] if source in SHIPPED else list(controls.TORCH) if timed else []
    wanted = set(named) - {source}
    return [control for name, control in controls.EVERY.items() if name in wanted]


def _names(what: str, text: str, known: tuple[str, ...]) -> list[str]:
    """Return the names that an option lists. Raises UsageError for one that is not known."""
    named = text.replace(",", " ").split()
    if unknown := [name for name in named if name not in known]:
        raise UsageError(f"no {what} {', '.join(unknown)}", f"there are {', '.join(known)}")
    return named


def pace(args: argparse.Namespace) -> Pace:
    """Return how the study is run. Raises UsageError."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    whole = dict(args.budget).get("run_usd")
    if whole is not None:
        each = budgets(args).usd
        if each is None or not 0 < each <= whole:
            raise UsageError(
                f"--budget run_usd={whole:g}", f"it must hold the budget of one sitting, {each or 'no limit'} USD",
                "Set --budget usd=N too.",
            )  # fmt: skip
    return Pace(args.jobs or 1, run_usd=whole)


def build(args: argparse.Namespace, size: str) -> Design:
    """Return the design that a command line asks for.

    Raises UsageError, and PrerequisiteError for a missing key, before anything starts.
    """
    foresee(args)
    kind, path = upstream(args)
    chosen = arms(args)
    plan = Design(
        agent=agent(args),
        model=args.model or config.model(bedrock=kind == "bedrock"),
        arms=chosen,
        kb=args.kb,
        mode=args.mode,
        repeats=args.repeats,
        upstream=kind,
        region=config.region() if kind == "bedrock" else "",
        budgets=budgets(args),
        optimize=args.optimize,
    )
    plan = replace(plan, prices=prices(plan))
    if path is not None:
        ids = [problem.id for problem in catalogue.suite("agent", size=size, only=args.problem)]
        found = scripts(path, design.units(plan, ids))
        digest = sha256(b"".join(found[name] + name.encode() for name in sorted(found)))
        plan = replace(plan, scripts=found, script_sha256=digest)
    return plan


def arms(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the arms, baseline first. Raises UsageError."""
    named = _names("arm", args.arms, ARMS) or ["baseline", "with_kb"]
    return tuple(arm for arm in ARMS if arm in named)


def upstream(args: argparse.Namespace) -> tuple[str, Path | None]:
    """Return the kind of upstream, and the path of a replay's scripts or None. Raises UsageError."""
    kind, _, path = args.upstream.partition(":")
    kind = kind or ("bedrock" if config.wants_bedrock() else "anthropic")
    if kind not in design.UPSTREAMS:
        raise UsageError(f"no upstream {kind!r}", "there are anthropic, bedrock and replay:PATH")
    if (kind == "replay") != bool(path):
        raise UsageError(
            f"--upstream {args.upstream}", "only a replay takes a PATH, and it needs one", "Use replay:PATH."
        )
    if path and not Path(path).exists():
        raise UsageError(f"no such script or folder: {path}")
    return kind, Path(path) if path else None


def foresee(args: argparse.Namespace) -> None:
    """Check what needs no engine, image or fixture. Raises UsageError, PrerequisiteError."""
    chosen_controls(args, "", "")
    if folders(args) or agent(args) in SHIPPED:
        return
    kind, _ = upstream(args)
    named = arms(args)
    pace(args)
    remedy = "Use `make run`, which installs it, or `pip install '.[agents]'` in a checkout."
    importing.require("inspect_ai", "agents are run by Inspect", remedy)
    if args.kb not in KNOWLEDGE and not args.kb.startswith(("http://", "https://")):
        raise UsageError(f"no knowledge base {args.kb}", f"there are {', '.join(KNOWLEDGE)}, or an address http(s)://…")
    needed = key_of(kind, args.model)
    if args.kb == "leeroopedia" and "with_kb" in named:
        needed.append(("LEEROOPEDIA_API_KEY", "the published knowledge base needs a key"))
    without = "--upstream replay:PATH, --kb local, --agent oracle"
    require_keys(needed, f"Put it into {config.dotenv_file()} or the environment, or run without: {without}.")


def key_of(kind: str, model: str) -> list[tuple[str, str]]:
    """Return the key of an upstream and why it is needed. Inspect asks for the keys of other providers itself."""
    return [_KEYS[kind]] if kind in _KEYS and "/" not in model else []


def require_keys(keys: list[tuple[str, str]], remedy: str) -> None:
    """Raise PrerequisiteError for a key that is not set."""
    for name, why in keys:
        if not config.secret(name):
            raise PrerequisiteError(f"{name} is not set", why, remedy)


def prices(plan: Design) -> dict[str, object]:
    """Return the price table with only the row of this study's model.

    A model that the table lacks has no row, and its cost stays unknown. Raises UsageError if money is bounded but
    cannot be counted.
    """
    rates = tables.of_model(plan.model)
    if rates is None and plan.budgets.usd is not None:
        raise UsageError(
            f"the price of {plan.model} is unknown", "so a budget of money cannot be kept",
            "Give --budget usd=0 for no limit.",
        )  # fmt: skip
    return {"as_of": tables.AS_OF, "models": {plan.model: rates} if rates is not None else {}}


def budgets(args: argparse.Namespace) -> Budgets:
    """Return the budgets of one job."""
    given = {name: value or None for name, value in args.budget if name in _SITTING}
    return replace(DEFAULTS[args.mode], **given)


def scripts(path: Path, order: list[Unit]) -> dict[str, bytes]:
    """Return the script of every unit. Raises UsageError.

    A file serves all units. In a folder the first of `ID.ARM.REPEAT.jsonl`, `ID.ARM.jsonl`, `ARM.jsonl` and `ID.jsonl`
    is used, where ID is `suite` for all problems in one session.
    """
    found = {}
    for unit in order:
        both = f"{unit.name}.{unit.arm}"
        names = (f"{both}.{unit.repeat}.jsonl", f"{both}.jsonl", f"{unit.arm}.jsonl", f"{unit.name}.jsonl")
        places = [path] if path.is_file() else [path / name for name in names]
        place = next((each for each in places if each.is_file()), None)
        if place is None:
            raise UsageError(f"no script for {unit.id} in {path}", f"none of {', '.join(names)} is there")
        found[unit.id] = foreign.read(place, _MOST_BYTES)
    return found
