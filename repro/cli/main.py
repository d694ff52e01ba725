"""The command line: parse, and run one verb. Each verb is a module with its arguments and its steps."""

from __future__ import annotations

import argparse
import difflib
from types import ModuleType

from repro import __version__, config
from repro.bundle import origin
from repro.cli import (
    benchmark,
    claims,
    compare,
    doctor,
    ending,
    evaluate,
    fetch,
    fixtures,
    knowledge,
    optimize,
    problems,
    report,
    run,
    share,
    verify,
)
from repro.cli.arguments import Parser
from repro.errors import UsageError
from repro.runs.progress import Progress
from repro.system import foreign

# The verbs, as the help groups them.
GROUPS: dict[str, dict[str, ModuleType]] = {
    "judge": {"evaluate": evaluate, "fixtures": fixtures, "problems": problems},
    "studies": {"run": run, "benchmark": benchmark, "claims": claims, "optimize": optimize, "fetch": fetch},
    "evidence": {"report": report, "compare": compare, "verify": verify, "share": share},
    "machine": {"doctor": doctor, "knowledge": knowledge},
}
# Verbs of earlier releases, and what is written in their place.
_RENAMED = {
    "audit": "problems --audit",
    "artifacts": "verify DIR",
    "status": "report --live",
    "bundle": "share",
    "fingerprint": "doctor --json FILE",
    "gc": "doctor --clean",
}
_DESCRIPTION = "Re-run, judge and publish GPU-kernel results."
_EXAMPLES = """examples:
  repro doctor                                  check what this machine lacks
  repro evaluate my_kernel.py --problem L1_36   judge one solution
  repro run --agent oracle                      judge the shipped solutions
  repro run --solutions mine=DIR                judge any agent's, from a folder
  repro benchmark 36 --json out.json            time one of the artifact study
  repro claims                                  test its published figures
  repro benchmark --artifacts DIR --parity      time a folder by both clocks
  repro optimize L1_36 --minutes 10             search, also --from FILE
  repro verify DIR                              check a folder, running nothing
  repro report                                  draw the newest bundle again
  repro report A B -o DIR                       draw bundles side by side
  repro report --live                           watch a run in another terminal
  repro compare A B                             compare two bundles row by row
  repro compare --claims B                      list which figures it reproduces
  repro verify                                  check the newest bundle
  repro share B -o public                       copy a bundle without identities

exit codes: 0 the work is done, whatever the verdicts; 1 wrong use, a faulty
problem file, or something is missing here; 2 the tool failed, or `verify` found
a failure or an error; 3 with --strict, a solution was not correct or a claim
was not reproduced; with --against, it is slower or not correct; 130
interrupted."""


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    top = Parser(prog="repro", usage="repro [-h] [--version] VERB ...", epilog=_EXAMPLES)
    top.add_argument("--version", action="version", version=f"repro {__version__}")
    verbs = top.add_subparsers(prog="repro", dest="verb", metavar="VERB", required=True, help=argparse.SUPPRESS)
    paragraphs = [_DESCRIPTION]
    for group, modules in GROUPS.items():
        for name, module in modules.items():
            sub = verbs.add_parser(name, description=f"{module.TEXT[0].upper()}{module.TEXT[1:]}.")
            sub.set_defaults(run=module.run)
            amount = sub.add_mutually_exclusive_group()
            amount.add_argument("-q", "--quiet", action="store_true", help="print the last line alone")
            amount.add_argument("-v", "--verbose", action="store_true", help="print everything")
            module.add(sub)
        paragraphs.append(f"{group}:\n" + "\n".join(f"  {name:<13}{each.TEXT}" for name, each in modules.items()))
    top.description = "\n\n".join(paragraphs)
    return top


def _hint(word: str, known: list[str], form: str) -> str:
    """Return a question that names what is most like a word, in this form; empty where nothing is."""
    near = difflib.get_close_matches(word, known, 1)
    return f"Did you mean {form.format(near[0])}? " if near else ""


def _known(words: list[str]) -> None:
    """Raise UsageError where the verb is none; name the nearest one, or the new name of an old one."""
    given = next((word for word in words if not word.startswith("-")), None)
    names = [name for modules in GROUPS.values() for name in modules]
    if given is None or given in names:
        return
    if given in _RENAMED:
        raise UsageError(f"`repro {given}` is now `repro {_RENAMED[given]}`")
    hint = _hint(given, names, "`repro {}`")
    raise UsageError(f"no verb {given!r}", f"there are {', '.join(names)}", f"{hint}See `repro --help`.")


def _unknown(word: str, args: argparse.Namespace) -> UsageError:
    """Return the error of an argument that the verb does not take, with the nearest flag that it takes."""
    hint = _hint(word.partition("=")[0], [f"--{name.replace('_', '-')}" for name in vars(args)], "{}")
    return UsageError(f"unknown argument {word}", "", f"{hint}See `repro {args.verb} --help`.")


def main(words: list[str]) -> int:
    """Run one verb and return the exit code. `entry.main` calls it for every verb that a person may use."""
    origin.COMMAND[:] = words

    def run_verb(args: argparse.Namespace) -> int:
        file = config.dotenv_file()
        if file.exists():
            config.load_dotenv(foreign.text(file))
        if raw := [word for word in words if not word.isprintable()]:
            raise UsageError(f"the argument {raw[0]} has control characters or is not UTF-8", "", "Rename the file.")
        _known(words)
        _, unknown = parser().parse_known_args(words, args)
        if unknown:
            raise _unknown(unknown[0], args)
        code: int = args.run(args, Progress(quiet=args.quiet))
        return code

    return ending.exit_code(run_verb)
