"""Verdicts and their reasons in plain English, for the terminal, reports and progress lines.

JSON keeps verdicts and reason codes. `REASONS` gives every code the judge can produce one sentence: what happened, the
number and its limit, and what to do. A test collects the codes of the code base and compares them with this table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from repro.errors import printable
from repro.records import verdict as records
from repro.records.where import Where

_NEEDS_CUDA = "needs_cuda"
_FAR = 1e6  # a distance from which on its number says nothing
NOT_JUDGED = "not judged"
# What any table, claim or banner says of solutions that came from a folder.
FROM_FOLDER = "solutions from a folder: who wrote them, or what, is not known here"
_NAMED = 8  # names that one line shows
MISSING = "missing"  # the reason code of a solution that does not exist, and its word
# Verdict of the JSON -> the word a reader sees.
VERDICTS = {
    "correct": "correct",
    "incorrect": "wrong",
    "rejected": "rejected",
    "error": "error",
    "timeout": "timed out",
    "inconclusive": "inconclusive",
    "unjudgeable": "unjudgeable",
    "not measured": "not measured",
}
_UNTRIED = {"NOT-COMPARABLE": "not comparable", "BLOCKED": "blocked"}
# The two verdicts of a claim -> verdict of the JSON -> the words a reader sees.
CLAIM = {
    "as_published": {"REPRODUCED": "reproduced", "DIFFERS": "differs", "AMBIGUOUS": "unclear"} | _UNTRIED,
    "as_judged": {"REPRODUCED": "holds", "DIFFERS": "does not hold", "AMBIGUOUS": "unclear"} | _UNTRIED,
}
# Kind of an input case -> which inputs and weights it means, from simple to strange.
CASES = {
    "native": "on the published inputs",
    "perturbed": "with perturbed weights",
    "stress": "on signed inputs",
    "perturbed_stress": "on signed inputs with perturbed weights",
    "tiny": "on inputs scaled down many times",
    "large": "on inputs scaled up many times, of both signs",
    "curved": "on inputs that reach the curves of its functions",
    "mixed": "on inputs of which some are scaled up many times and others down",
    "heavy": "on inputs with heavy tails",
    "offset": "on inputs far from zero",
    "banded": "on inputs whose rows, columns or channels lie far apart",
    "spiked": "on spiked inputs",
    "perturbed_spiked": "on spiked inputs with perturbed weights",
    "scaled": "with larger norms or matrices",
    "unit": "on inputs of 1 and -1",
    "edited": "on the previous call's inputs with a few elements changed",
    "nonfinite": "on inputs with one NaN",
    "needs_contiguous": "on inputs that are not contiguous",
    "sanitizer": "under compute-sanitizer",
    "neighbour": "at a neighbouring shape",
    "warmup": "before the first comparison",
    "import": "while the file was imported",
    "timing": "while it was timed",
}
# Label of a finding that does not make a solution wrong -> what was found.
SPECIALISED = "shape_specialised"
FINDINGS = {
    SPECIALISED: "wrong at a neighbouring shape, which decides with --strict",
    "nonfinite": "a NaN of the inputs does not reach the output as in the reference",
    "reuses_output": "a later call changes the output of an earlier one",
    "needs_contiguous": "wrong on inputs that are not contiguous",
}
# Of a solution of class bf16 to a problem in fp32.
COARSER = "right within the errors of bf16, not of fp32: it is compared with baselines in bf16 or more precise"
# Guard -> what it measures. Limits of the loosest precision class decide.
DISTANCES = {
    "rel_l2": "relative L2 error",
    "max": "largest error of one element",
    "row": "error of the worst row",
    "zero": "error where the result is exactly 0",
    "bias": "mean error of elements of one sign and magnitude",
    "edit": "part of a change of the inputs that the output does not follow",
    "differ": "share of integers that differ",
}


# Kinds of input cases -> what a kernel is that fails on no other kind.
_ALONE = (
    ({"heavy"}, "right where all elements are alike: look for a part of a sum that is left out"),
    ({"banded"}, "right where all rows and channels are alike: look for a mean or variance of parts"),
    ({"offset"}, "right around zero: look for a difference of large numbers, and for padding that counts"),
    ({"scaled"}, "right with small hidden values: look for an approximation that holds in a range"),
    ({"tiny", "heavy"},
     "right on inputs of the usual size: look for a missing eps, or for values that are taken for 0"),
    ({"large", "mixed"}, "right on inputs of the usual size: look for overflow, fixed ranges and sums in 16 bits"),
    ({"spiked", "perturbed_spiked"}, "right without outliers: look for overflow, as of exp without the maximum"),
    ({"perturbed", "perturbed_stress", "perturbed_spiked"},
     "right with the published weights: look for a weight, bias or scale that is ignored, assumed or kept"),
    ({"stress", "perturbed_stress", "curved"}, "right on the published inputs: look for values of one sign"),
    ({"edited"}, "right on new inputs: look for what is kept from the call before"),
)  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """A reason for people. text: fields in braces are `where` (the input case) and `detail`; remedy: what to do."""

    text: str
    remedy: str


def _distance(guard: str, remedy: str) -> Reason:
    return Reason(f"wrong: {DISTANCES[guard]} {{detail}}{{where}}", remedy)


_SYNTAX = "Mend the file; `python FILE` shows the same error."
_OUTPUT = "Return what the problem's Model returns: type, dtype, shape, device, dense memory."
_CRASH = "Look for a load or store outside a tensor, such as one without a mask; on a GPU compute-sanitizer names it."
_MEMORY = "Use less memory, or a smaller size."
_CALL = "All work of a call must be done, on the current stream, when the call returns."
_WIRE = "Leave the judge's pipe, its processes and signals alone."
_TIMER = "Leave clocks alone. Streams of your own must wait for the current stream and be joined to it."

REASONS: dict[str, Reason] = {
    # distances to the fp64 reference
    "rel_l2": _distance("rel_l2", "1 is an answer of zeros, more a stale one. Compare with the Model in float64."),
    "max": _distance("max", "Look for single elements that are wrong: edges, masks, overflow."),
    "row": _distance("row", "Look for rows that are wrong: the last block, masks, reductions."),
    "zero_region": _distance("zero", "Leave exact zeros (ReLU, padding, masks) at zero."),
    "bias": _distance("bias", "Rounding averages out there: look for an approximation of a function."),
    "differs": _distance("differ", "Integers and booleans compare exactly: look for an offset or a cast."),
    "stale": _distance("edit", "Compute every call from its own inputs: nothing may be kept from the last call."),
    "not_finite": Reason(
        "wrong: NaN or infinity where the reference is finite, or elements that were never written{where}",
        "Write every element; look for overflow and division by zero.",
    ),
    "nondeterministic_wrong": Reason(
        "wrong: a repeated call on the same inputs gave another, wrong output{where} ({detail})",
        "Look for races, missing synchronisation, elements that are never written and state kept between calls.",
    ),
    "race": Reason("wrong: two programs of a launch race{where}: {detail}", "Use atomics, or two launches."),
    "timed_output_wrong": Reason(
        "wrong: a call gave a wrong output while it was timed ({detail})",
        "The output must not depend on the addresses of the inputs or on how often the kernel ran.",
    ),
    "trials_missing": Reason("inconclusive: not every input case was run ({detail})", "Repeat with --resume."),
    "degenerate": Reason(
        "unjudgeable: the problem cannot tell a cheat from the truth ({detail})", "Judge on another problem."
    ),
    "class_refused": Reason(
        "unjudgeable: the problem tells nothing at this precision ({detail})", "Compute more precisely."
    ),
    # shape and memory of the output
    "wrong_structure": Reason("wrong: the number or nesting of outputs differs{where}: {detail}", _OUTPUT),
    "wrong_type": Reason("wrong: the output is no plain tensor{where}: {detail}", _OUTPUT),
    "wrong_layout": Reason("wrong: the output is no dense tensor{where}: {detail}", _OUTPUT),
    "wrong_dtype": Reason("wrong dtype of the output{where}: {detail}", _OUTPUT),
    "wrong_shape": Reason("wrong shape of the output{where}: {detail}", _OUTPUT),
    "wrong_device": Reason("wrong device of the output{where}: {detail}", _OUTPUT),
    "not_dense": Reason("wrong: elements of the output overlap or have gaps between them{where}", _OUTPUT),
    "no_storage": Reason("wrong: the output has no memory of its own for all its elements{where}", _OUTPUT),
    "aliases_input": Reason(
        "wrong: the output shares memory with an input{where}",
        "Return a tensor of its own, not a view of an input, and write into no input."
    ),
    "sanitizer": Reason(
        "wrong: compute-sanitizer finds an error: {detail}",
        "Look for loads and stores outside tensors and for missing barriers.",
    ),
    "sanitizer_failed": Reason("compute-sanitizer did not finish: {detail}", "Leave out --check sanitizer."),
    "needs_contiguous": Reason(
        "wrong on inputs that are not contiguous: {detail}", "Index by strides, or copy by .contiguous() first."
    ),
    "input_modified": Reason("wrong: the call changed its inputs{where}", "Do not write to the inputs."),
    # the file
    "syntax_error": Reason("{detail} (syntax error)", _SYNTAX),
    "import_error": Reason("the file cannot be imported: {detail}", "Import it in a shell; there is no network."),
    "missing": Reason("missing: {detail}", "Write ModelNew or kernel_function into the file."),
    "no_entry": Reason(
        "the file defines no entry point: {detail}",
        "Rename your class to ModelNew, or your function to kernel_function.",
    ),
    "not_a_module": Reason("the entry point is no module: {detail}", "Derive ModelNew from torch.nn.Module."),
    "constructor": Reason("stopped with an error: {detail}", "Give ModelNew the constructor of the problem's Model."),
    "state_dict_mismatch": Reason(
        "the weights of the problem's Model do not fit ModelNew: {detail}",
        "Give parameters and buffers the names and shapes that Model gives them.",
    ),
    "banned": Reason("rejected: the source does what no kernel needs ({detail})", "See `Avoid` in docs/judging.md."),
    # the process
    "exception": Reason("stopped with an error{where}: {detail}", "`repro evaluate --explain` says more."),
    _NEEDS_CUDA: Reason("not judged: needs CUDA ({detail})", "Judge it on a machine with a GPU: --device cuda."),
    "out_of_memory": Reason("out of memory{where}: {detail}", _MEMORY),
    "judge_out_of_memory": Reason("it left no memory on the GPU for the reference{where}", _MEMORY),
    "segfault": Reason("crashed{where}: {detail}", _CRASH),
    "killed": Reason("killed{where}: {detail}", _MEMORY),
    "worker_died": Reason("its process died{where}: {detail}", _CRASH),
    "worker_exited": Reason("its process ended by itself{where}: {detail}", "Do not call exit; see what it printed."),
    "worker_closed_pipe": Reason("its process stopped answering{where}: {detail}", _WIRE),
    "timeout": Reason("timed out{where}: {detail}", "Make it quicker, or raise --budget timeout_s=N."),
    # rules of the measurement
    "protocol_tampered": Reason("rejected: an answer that the judge did not ask for, or none ({detail})", _WIRE),
    "deferred_write": Reason("rejected: the output changed after its call had ended{where} ({detail})", _CALL),
    "background_work": Reason("rejected: it works while it is not called{where} ({detail})", _CALL),
    "clocks_disagree": Reason("rejected: the judge's clock and the reported time disagree ({detail})", _TIMER),
    "impossible_time": Reason("rejected: the reported time cannot be one ({detail})", _TIMER),
    "below_floor": Reason("rejected: faster than this GPU can be ({detail})", "Look for skipped work."),
    "baseline_disturbed": Reason(
        "rejected: it slowed the baselines beside it ({detail})", "Free memory and end all work when a call returns."
    ),
    "baseline_incorrect": Reason("the torch baseline is wrong itself ({detail})", "Report this problem file."),
    # shapes
    "shapes": Reason("right at {detail}", "Look for what is right at one shape alone: masks, strides, block sizes."),
    # rows without a verdict
    "failed": Reason("not measured: the tool failed ({detail})", "Repeat with --resume."),
    "unmet": Reason("not measured: {detail}", "Mend what it names and repeat with --resume."),
    "lost": Reason("not measured: the engine went away ({detail})", "Repeat with --resume."),
    "interrupted": Reason("not measured: interrupted", "Repeat with --resume."),
}  # fmt: skip
_BEYOND = Reason("wrong: not finite, or far beyond any value of the reference{where}", REASONS["not_finite"].remedy)
_OTHER = Reason("stopped with an error{where}: {detail}", REASONS["exception"].remedy)
_DTYPE = "It names {0}: if it is made for inputs of that type, add --dtype {0}."
# What an error's text says -> what to do, where that is another thing than for most errors of its code.
_SAID = {
    r"(?i)no module named|relative import|cannot import name": "Put code of files beside it into it: a solution is one "
    "file. Packages must be installed where it is judged; there is no network.",
    r"\bforward\(\) (missing|takes|got)": "Give forward the parameters of the problem's Model.",
    r"\bkernel_function (is no|could be|takes)": "Call its parameters as the inputs and the model's values are called.",
    r"(?i)\bbf(loat)?16": _DTYPE.format("bfloat16"),
    r"(?i)\b(fp16|float16|half)\b": _DTYPE.format("float16"),
}


def reason(given: records.Reason) -> str:
    """One reason of a verdict as a sentence. Bundles written before its numbers were kept have the detail alone."""
    known = REASONS.get(given.code, _OTHER)
    detail = given.detail.strip().rstrip(".")
    where = CASES.get(given.trial, "")
    where = f" {where}" if where else ""
    where = f" in {given.output}{where}" if given.output else where
    if given.limit is not None:
        detail = _number(given.value)
        if (given.value or 0.0) < _FAR:
            where += f"; even {given.klass} allows {_number(given.limit)}"
        else:
            known = _BEYOND
    return printable(known.text.format(detail=detail, where=where)).replace(" ()", "").rstrip(": ")


def alone(failed: list[str]) -> list[str]:
    """Return what it says that a kernel fails on these kinds of input cases alone; nothing where it says nothing."""
    return [text for kinds, text in _ALONE if failed and kinds.issuperset(failed)][:1]


def located(where: Where) -> list[str]:
    """Return where an output is wrong in sentences."""
    told = []
    if where.wrong:
        of = f"output {where.output + 1}: " if where.output else ""
        shape = " x ".join(map(str, where.shape))
        count = f"{where.wrong:,} of {where.elements:,} elements ({100 * where.wrong / where.elements:.3g} %)"
        count = f"all {where.elements:,} elements" if where.wrong == where.elements else count
        span = f"the first at {where.first}, the last at {where.last}" if where.wrong > 1 else f"at {where.first}"
        told.append(f"{of}{count} of {shape} are far off, {span}" if shape else f"{of}the number is far off")
    if (one := where.example) is not None and where.wrong:
        told.append(f"at {where.first}: expected {one.expected:.6g}, got {one.got:.6g}")
    told += where.patterns
    if where.wrong:
        norms = f"norm {where.norm:.4g}, of the reference {where.expected_norm:.4g}"
        told.append(f"{where.failed} of {where.trials} kinds of inputs fail; {norms}")
    return [printable(text) for text in told]


def remedy(given: records.Reason, problem: str = "") -> str:
    """What the author of a solution can do about a reason, or the empty string. problem: its key, with its dtype."""
    said = given.detail if given.code in ("import_error", "exception") else ""
    hint = next((hint for text, hint in _SAID.items() if re.search(text, said)), "")
    return REASONS.get(given.code, _OTHER).remedy if not hint or ("--dtype" in hint and "@" in problem) else hint


def unused(arm: str, names: list[str]) -> str:
    """One line on what in an arm's folder is no solution of the study."""
    told = "not used, no problem's id at the beginning of the name, as in L1_36_mine.py"
    return printable(f"{arm}: {told}: {listed(names)}")


def listed(names: Iterable[str], shown: int = _NAMED) -> str:
    """`a, b and 3 more`."""
    every = list(names)
    more = len(every) - shown
    return ", ".join(every[:shown]) + (f" and {more} more" if more > 0 else "")


def counts(of: Mapping[str, int]) -> str:
    """`2 correct, 1 wrong`: how many there are of each word."""
    return ", ".join(f"{n} {word}" for word, n in of.items())


def _number(value: float | None) -> str:
    """Three digits, two where they are small."""
    return "" if value is None else f"{value:.{2 if abs(value) < 0.1 else 3}g}"


@dataclass(frozen=True)
class Told:
    """What may also have the verdict `not measured`."""

    verdict: str
    reasons: list[records.Reason]


# What has a verdict with reasons.
Judged = records.Verdict | records.CaseOutcome | Told


def not_judged(entry: Judged) -> bool:
    """Whether a verdict says only that this machine lacks what the solution needs."""
    return entry.verdict == "error" and any(r.code == _NEEDS_CUDA for r in entry.reasons)


def word(entry: Judged) -> str:
    """A verdict as one or two words, as a narrow column shows it."""
    if any(r.code == MISSING for r in entry.reasons):
        return MISSING
    return NOT_JUDGED if not_judged(entry) else VERDICTS.get(entry.verdict, entry.verdict)


def why(entry: Judged) -> str:
    """Why a verdict is not `correct`, from its first reason; the empty string where it is."""
    reasons = [r for r in entry.reasons if r.code == _NEEDS_CUDA] or entry.reasons
    if entry.verdict == "correct" or not reasons:
        return ""
    return reason(reasons[0])


def sentence(entry: Judged) -> str:
    """A verdict with its first reason, on one line."""
    return why(entry) or word(entry)


def counted(entries: Iterable[Judged]) -> str:
    """`9 of 10 correct (1 wrong), 2 not judged: need CUDA`: verdicts of several solutions."""
    words = Counter(map(word, entries))
    left_out = words.pop(NOT_JUDGED, 0)
    others = ", ".join(f"{n} {name}{'s' if name == 'error' and n > 1 else ''}"
                       for name, n in words.items() if name != "correct")  # fmt: skip
    text = f"{words['correct']} of {words.total()} correct" + (f" ({others})" if others else "")
    if not words.total():
        text = ""
    needs = f"{left_out} not judged: need{'s' if left_out == 1 else ''} CUDA" if left_out else ""
    return ", ".join(filter(None, (text, needs))) or "nothing judged"
