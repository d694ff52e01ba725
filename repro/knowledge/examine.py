"""The tools that examine an agent's text: review_plan, verify_code_math and diagnose_failure."""

from __future__ import annotations

import re

from repro.knowledge.answer import Answer, clip, linked, put
from repro.knowledge.corpus import Library
from repro.knowledge.parts import Signature
from repro.knowledge.retrieve import quote, ranked
from repro.knowledge.rules import matches, nearest_rules, rule_line
from repro.knowledge.words import ends

LISTED = 8
QUOTED, QUOTE_CHARS = 2, 1300
FAULT = re.compile(
    r"error|exception|assert|fail|fault|denied|refused|not found|mismatch|warning|illegal|nan\b|inf\b", re.I
)


def review_plan(pages: Library, proposal: str, goal: str) -> Answer:
    """Return rules that apply to the plan, split by whether it names their remedy, then rules close to the goal."""
    found = [match for match in matches(pages, proposal, goal) if match.speaks][:LISTED]
    good = [match.rule for match in found if match.heeded]
    bad = [match.rule for match in found if not match.heeded]
    room = max(2, LISTED - len(found))
    near = nearest_rules(pages, f"{goal} {proposal}", room, frozenset(good + bad))
    hits = ranked(pages, goal, proposal, QUOTED)
    if not found and not near and not hits:
        return Answer("No rule and no page contains a word of this plan.")
    answer = [
        f"{len(pages.rules)} rules were compared with the plan by their words; {len(found)} apply to it. "
        "Parts of the plan to which no rule applies were not reviewed.",
        "## Approvals\n" + ("\n".join(map(rule_line, good)) or "The plan names no rule's remedy."),
        "## Risks\n" + ("\n".join(map(rule_line, bad)) or "No rule speaks against the plan."),
        "## Close to the goal, but not in the plan's words\n" + "\n".join(map(rule_line, near)),
        "## Pages on the goal",
        *(quote(hit, QUOTE_CHARS) for hit in hits),
    ]
    return put(answer, [rule.page for rule in (*bad, *good)] + [hit.page.id for hit in hits] + [r.page for r in near])


def verify_code_math(pages: Library, code_snippet: str, concept_name: str) -> Answer:
    """Return findings of the fixed checks, then rules that apply to the code, then pages on the concept."""
    found = pages.checks(code_snippet)
    spoken = [match.rule for match in matches(pages, f"{code_snippet} {concept_name}") if match.speaks][:LISTED]
    near = nearest_rules(pages, f"{concept_name} {code_snippet}", LISTED - len(spoken), frozenset(spoken))
    hits = ranked(pages, concept_name, code_snippet, QUOTED)
    faults = sum(finding.severity == "fault" for finding in found)
    verdict = f"Fail: {faults} of the fixed checks found a fault" if faults else "No fault found by the fixed checks"
    answer = [
        f"## Verdict\n{verdict}. The code was read, not run: this does not prove that it is right.",
        "## Findings\n" + ("\n".join(finding.line() for finding in found) or "None."),
        "## Rules with words of the code\n" + ("\n".join(map(rule_line, spoken)) or "None."),
        "## Rules to check the code against\n" + "\n".join(map(rule_line, near)) if near else "",
        "## Pages on the concept" if hits else "",
        *(quote(hit, QUOTE_CHARS) for hit in hits),
    ]
    cited = [finding.page for finding in found] + [hit.page.id for hit in hits]
    return put(answer, cited + [rule.page for rule in (*spoken, *near)])


def diagnose_failure(pages: Library, symptoms: str, logs: str) -> Answer:
    """Return signatures found in the logs, then the nearest ones, then pages on the symptoms."""
    log = ends(logs)
    seen = [(each, match.group()) for each in pages.signatures if (match := each.pattern.search(log))]
    seen += [
        (each, match.group())
        for each in pages.signatures
        if each not in [known for known, _ in seen] and (match := each.pattern.search(ends(symptoms)))
    ]
    # The longest match is the most specific one.
    seen.sort(key=lambda pair: -len(pair[1]))
    faults = " ".join(line.strip() for line in log.splitlines() if FAULT.search(line))[:2000]
    hits = ranked(pages, f"{symptoms} {faults}", "", QUOTED)
    near = _nearest(pages, f"{symptoms} {faults}", [each for each, _ in seen])[: max(0, LISTED // 2 - len(seen))]
    if not seen and not near and not hits:
        return Answer("No signature matches, and no page contains a word of these symptoms.")
    known = [f"- `{clip(found, 160)}`: {linked(each.cause)} [{each.page}]" for each, found in seen[:LISTED]]
    fixes = list(dict.fromkeys(f"{linked(each.fix)} [{each.page}]" for each, _ in seen[:LISTED]))
    answer = [
        f"## Diagnosis\n{len(pages.signatures)} signatures were searched; {len(seen)} match.\n" + "\n".join(known),
        "## Fix\n" + "\n".join(f"{n}. {fix}" for n, fix in enumerate(fixes, 1)) if fixes else "",
        "## Nearest known failures, without a matching signature\n"
        + "\n".join(f"- {linked(each.cause)} Fix: {linked(each.fix)} [{each.page}]" for each in near)
        if near
        else "",
        "## Pages on the symptoms",
        *(quote(hit, QUOTE_CHARS) for hit in hits),
    ]
    return put(answer, [each.page for each, _ in seen] + [hit.page.id for hit in hits] + [each.page for each in near])


def _nearest(pages: Library, text: str, without: list[Signature]) -> list[Signature]:
    """Return signatures of error pages that the search finds; those sharing the rarest words with a text come first."""
    said = pages.stems(text)
    near = [each for hit in pages.index.search(text, 4, ("error",)) for each in hit.page.signatures]
    shared = {each: sum(map(pages.index.rarity, said & pages.signature_stems[each])) for each in near}
    return sorted((each for each in near if each not in without), key=lambda each: -shared[each])
