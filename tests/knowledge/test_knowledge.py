"""The knowledge base: its pages hold to their format and give no solution away, the search finds the right page, and
each of the eight tools answers from the pages whatever it is sent."""

import ast
import functools
import os
import re
import statistics
import textwrap
import threading
import time
import tomllib

import pytest

from repro import config
from repro.errors import UsageError
from repro.knowledge import pages, tools, vocabulary, words
from repro.knowledge.tools import MAX_CHARS, MAX_PAGE_CHARS, library
from repro.records import wording

KINDS = ("local", "placebo")
QUESTIONS = tomllib.loads((config.ROOT / "tests" / "knowledge_questions.toml").read_text())["question"]
# (required, optional), as the published server lists them
PUBLISHED = {
    "search_knowledge": (["query"], ["context"]),
    "build_plan": (["goal"], ["constraints"]),
    "review_plan": (["proposal", "goal"], []),
    "verify_code_math": (["code_snippet", "concept_name"], []),
    "diagnose_failure": (["symptoms", "logs"], []),
    "propose_hypothesis": (["current_status"], ["recent_experiments"]),
    "query_hyperparameter_priors": (["query"], []),
    "get_page": (["page_id"], []),
}
# Words that do not occur in house and garden.
FIELD = re.compile(
    r"\b(gpus?|cuda|triton|nvidia|kernels?|warps?|tensors?|softmax|gemm|matmul|sm_\d+|fp16|bf16|torch|threads?|"
    r"registers?|caches?|bandwidth|num_\w+|occupancy)\b",
    re.I,
)


def arguments(tool, text):
    """A call's arguments with one text for all of them, or a page's id."""
    required, optional = PUBLISHED[tool]
    if tool == "get_page":
        return {"page_id": text}
    return dict.fromkeys([*required, *optional], text)


@functools.cache
def everything(kind):
    """Every answer of every tool to every question; of get_page, every page."""
    asked = [(tool, question["ask"]) for tool in PUBLISHED if tool != "get_page" for question in QUESTIONS]
    asked += [("get_page", page) for page in library(kind).pages]
    return [(tool, tools.call(tool, arguments(tool, text), kind)) for tool, text in asked]


def ranks():
    """For every question the place of the first right page among those found, 0 for none."""
    found = []
    for question in QUESTIONS:
        hits = tools.call("search_knowledge", {"query": question["ask"]}).hits
        found.append(next((n for n, hit in enumerate(hits, 1) if hit in question["pages"]), 0))
    return found


# --- what the tool itself says

CODES = ("rel_l2", "max", "row", "zero_region", "bias", "stale", "not_finite", "nondeterministic_wrong",
         "timed_output_wrong", "input_modified", "aliases_input", "deferred_write", "wrong_shape",
         "wrong_structure")  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_the_judges_messages_lead_to_the_page_on_wrong_results(code):
    hits = tools.call("diagnose_failure", {"symptoms": wording.REASONS[code].text, "logs": ""}).hits
    assert "error-wrong-result" in hits[:2], hits


def test_a_grid_that_is_rounded_down_is_seen_in_code():
    code = "def forward(self, x):\n    k[(n // 1024,)](x, y, n, BLOCK=1024)"
    sent = {"code_snippet": code, "concept_name": "softmax"}
    assert tools.call("verify_code_math", sent).hits[0] == "error-wrong-result"
    sent["code_snippet"] = code.replace("n // 1024", "triton.cdiv(n, 1024)")
    assert "error-wrong-result" not in tools.call("verify_code_math", sent).hits[:1]


# --- pages


SECTIONS = {
    "pitfall": {"Rule"},
    "error": {pages.SIGNATURES},
    "priors": {"Table"},
    "playbook": {"Steps"},
    "technique": {"When it pays", "How far it goes"},
}
# Sections with lines of data, which may be long.
DATA = ("Rule", pages.SIGNATURES, "Table", "Steps")
LONGEST_SECTION = 450


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_holds_to_the_format_and_its_links_lead_to_pages(kind):
    known = vocabulary.of(kind)
    loaded = pages.load(known.folder)
    assert loaded and sorted(loaded) == sorted(file.stem for file in known.folder.glob("*.md"))
    for page in loaded.values():
        assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", page.id) and page.kind in vocabulary.KINDS, page.id
        assert page.ops and set(page.ops) <= set(known.ops), page.id
        for field in ("archs", "dtypes", "languages"):
            given = getattr(page, field)
            assert given and set(given) <= {*getattr(known, field), "any"}, (page.id, field)
        assert page.title and page.summary.endswith(".") and len(page.summary) <= 400, page.id
        assert {*page.see, *pages.LINK.findall(page.text)} <= loaded.keys() and page.id not in page.see, page.id
        assert 200 <= len(page.text.split()) <= 1500, page.id
        headings = [section.heading for section in page.sections]
        assert len(headings) == len(set(headings)) and SECTIONS.get(page.kind, set()) <= set(headings), page.id
        for section in page.sections:
            most = 1500 if section.heading in DATA else LONGEST_SECTION
            assert 0 < len(section.text.split()) <= most, (page.id, section.heading)
            assert section.text.count("```") % 2 == 0, (page.id, section.heading)
        assert page.signatures or page.kind != "error", page.id
        assert not [pattern for pattern in page.signatures if pattern.search("")], page.id


def fragments():
    """(page, code) of every fragment in Python."""
    for page in library("local").pages.values():
        for code in re.findall(r"```python\n(.*?)```", page.text, re.S):
            yield page.id, textwrap.dedent(code)


def test_every_fragment_parses_and_names_only_what_the_pinned_triton_has():
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    assert len(list(fragments())) >= 40
    for page, code in fragments():
        ast.parse(code)
        for root, name in ((triton, "triton"), (tl, "tl"), (libdevice, "libdevice"), (tl.math, "tl.math")):
            for word in re.findall(rf"(?<![\w.]){name}\.(\w+)", code):
                assert hasattr(root, word), f"{page}: {name}.{word}"


# What an agent must not find in the pages: the problems, known solutions and published kernels.
SECRET = ("problems/*.py", "artifacts/oracle/*.py", "artifacts/*/problem.py", "artifacts/*/input_kernel.py",
          "artifacts/*/optimized_kernel_beam_search.py")  # fmt: skip


def shingles(text):
    """Every run of 13 words. A word is letters, digits and underscores; case is ignored."""
    found = re.findall(r"\w+", text.lower())
    return {" ".join(found[n : n + 13]) for n in range(len(found) - 12)}


def coincidences(folder):
    """(page, source, words) of every run that a page shares with a source."""
    known = {file: shingles(file.read_text()) for pattern in SECRET for file in config.ROOT.glob(pattern)}
    return [
        (page.stem, str(file.relative_to(config.ROOT)), run)
        for page in folder.glob("*.md")
        for file, theirs in known.items()
        for run in shingles(page.read_text()) & theirs
    ]


def test_no_page_shares_13_words_with_a_problem_or_a_kernel():
    assert coincidences(vocabulary.of("local").folder) == []


@pytest.mark.parametrize("pattern", SECRET)
def test_every_source_of_the_overlap_check_is_there(pattern):
    assert list(config.ROOT.glob(pattern))


def test_placebo_speaks_of_nothing_in_the_field():
    for page in library("placebo").pages.values():
        assert not FIELD.search(f"{page.id} {page.title} {page.summary} {page.text}"), page.id
    for tool in tools.TOOLS:
        assert not FIELD.search(str(tool)), tool.name
    for tool, answer in everything("placebo"):
        # what a caller sent may stand in an answer; what the tool adds may not
        assert not FIELD.search(answer.text), tool


# --- the search


def test_right_page_is_among_the_first_three_for_34_of_40_questions():
    assert len(QUESTIONS) == 40
    known = set(library("local").pages)
    assert all(set(question["pages"]) <= known for question in QUESTIONS)
    places = ranks()
    missed = [question["ask"] for question, place in zip(QUESTIONS, places, strict=True) if not 1 <= place <= 3]
    assert len(QUESTIONS) - len(missed) >= 34, missed


def test_the_figures_of_the_documentation_are_those_of_these_pages():
    """REPRO_UPDATE_DOCS=1 writes them instead."""
    file = config.ROOT / "docs" / "knowledge.md"
    shelf, places = library("local"), ranks()
    counts = {kind: sum(page.kind == kind for page in shelf.pages.values()) for kind in vocabulary.KINDS}
    lines = [
        f"{len(shelf.pages)} pages with {sum(len(p.text.split()) for p in shelf.pages.values()):,} words: "
        + ", ".join(f"{n} of kind {kind}" for kind, n in counts.items())
        + f". They hold {sum(len(page.signatures) for page in shelf.pages.values())} signatures. "
        f"The placebo has {len(library('placebo').pages)} pages.",
        "",
        f"Of {len(QUESTIONS)} questions the right page comes first for {places.count(1)}, among the first three for "
        f"{sum(1 <= place <= 3 for place in places)}, and among the eight that are named for "
        f"{sum(place > 0 for place in places)}.",
    ]
    wanted = "\n".join(lines)
    pattern = re.compile(r"(<!-- quality -->\n)(.*?)(<!-- /quality -->)", re.S)
    text = file.read_text()
    if os.environ.get("REPRO_UPDATE_DOCS"):
        file.write_text(pattern.sub(lambda found: f"{found.group(1)}{wanted}\n{found.group(3)}", text))
        return
    assert pattern.search(text).group(2).strip() == wanted, "run `make docs`"


@pytest.mark.clock
def test_a_search_takes_under_20_ms_at_the_95th_percentile():
    for question in QUESTIONS:
        tools.call("search_knowledge", {"query": question["ask"]})
    times = []
    for _ in range(5):
        for question in QUESTIONS:
            began = time.perf_counter()
            tools.call("search_knowledge", {"query": question["ask"]})
            times.append(time.perf_counter() - began)
    assert sorted(times)[int(0.95 * len(times))] < 0.020


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("float16", "half precision"),
        ("ConvTranspose3d", "transposed convolution 3d"),
        ("matrix multiplication", "GEMM"),
        ("normalize", "normalise"),
        ("BatchNorm2d", "batch norm 2d"),
        ("H100", "sm_90"),
        ("out of bounds", "out-of-bounds"),
    ],
)
def test_words_that_mean_the_same_are_one_to_the_search(one, other):
    assert words.fold(one) == words.fold(other)


def test_an_index_answers_from_many_threads_as_from_one():
    index = library("local").index
    alone = {q["ask"]: [hit.page.id for hit in index.search(q["ask"])] for q in QUESTIONS}
    wrong = []

    def ask():
        wrong.extend(q for q, ids in alone.items() if [hit.page.id for hit in index.search(q)] != ids)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- the eight tools


def test_tools_and_their_arguments_are_the_published_ones():
    assert [tool.name for tool in tools.TOOLS] == list(PUBLISHED)
    for tool in tools.TOOLS:
        required, optional = PUBLISHED[tool.name]
        assert tool.input_schema["required"] == required
        assert list(tool.input_schema["properties"]) == [*required, *optional]
        assert {argument["type"] for argument in tool.input_schema["properties"].values()} == {"string"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_cites_pages_that_exist_and_stays_within_its_size(kind):
    known = set(library(kind).pages)
    for tool, answer in everything(kind):
        assert not answer.is_error, tool
        assert answer.hits, tool
        assert set(answer.hits) <= known, tool
        assert len(answer.hits) == len(set(answer.hits)), tool
        assert len(answer.text) <= (MAX_PAGE_CHARS if tool == "get_page" else MAX_CHARS), tool
        assert f"[{answer.hits[0]}]" in answer.text, tool
        assert "[[" not in re.sub(r"```.*?```|`[^`]*`", "", answer.text, flags=re.S), tool


def test_placebo_answers_as_much_as_the_pages_on_kernels():
    """The median length and number of hits of each tool are within a factor of two."""
    sizes = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for tool, answer in everything(kind):
            sizes[kind].setdefault(tool, []).append((len(answer.text), len(answer.hits)))
    for tool, local in sizes["local"].items():
        for n in (0, 1):
            ours = statistics.median(each[n] for each in local) or 1
            theirs = statistics.median(each[n] for each in sizes["placebo"][tool])
            assert 0.5 <= theirs / ours <= 2.0, (tool, ours, theirs)


@pytest.mark.parametrize(
    ("name", "sent", "told"),
    [
        ("search_knowledge", {}, "Missing: query"),
        ("search_knowledge", {"query": 7}, "Not a string: query"),
        ("search_knowledge", {"query": None}, "Not a string: query"),
        ("search_knowledge", {"query": "x", "limit": "3"}, "Unknown: limit"),
        ("search_knowledge", ["query"], "must be an object"),
        ("review_plan", {"proposal": "x"}, "Missing: goal"),
        ("verify_code_math", {"code_snippet": "x" * 1_000_001, "concept_name": "y"}, "Longer than"),
        ("get_page", {"page_id": "no-such-page-anywhere"}, "No page is called"),
        ("get_page", {"page_id": "softmax-online#no such heading"}, "has no section"),
        ("drop_table", {}, "Unknown tool 'drop_table'"),
    ],
)
def test_a_bad_call_is_an_error_that_says_what_is_wrong(name, sent, told):
    answer = tools.call(name, sent)
    assert answer.is_error
    assert told in answer.text
    assert len(answer.text) < 2500


def test_an_unknown_kind_of_pages_is_refused():
    with pytest.raises(UsageError, match="no knowledge base is called 'other'"):
        tools.call("search_knowledge", {"query": "x"}, "other")


HOSTILE = {
    "operators": 'softmax AND NOT OR NEAR(a b, 2) "un closed ( * ^ col:x {a b}: - +',
    "quotes": '" OR 1=1; DROP TABLE body; --',
    "a column": "text:softmax rowid:1",
    "nothing": "",
    "spaces": " \t\n\r\x0b ",
    "signs": "!!! ??? ((( ))) [[ ]] {{ }}",
    "stop words": "how do I do this with that",
    "zero bytes": "softmax\0kernel\0" * 20,
    "surrogates": "\ud800\udfff softmax",
    "other scripts": "归一化 السوفت ماكس ソフトマックス ṡóft̃max ﬁ ² Ⅳ 🤖" * 10,
    "combining marks": "a" + "\u0301" * 5000,
    "a word of 100 kB": "a" * 100_000,
    "100 kB of words": " ".join(f"word{n}" for n in range(14_000)),
    "100 kB of one word": "softmax " * 12_500,
    "brackets in brackets": "(" * 50_000,
    "lines": "error\n" * 20_000,
    "a page of its own": "---\nid: x\n---\n## Rule\n- if: a | then: b | do: c",
}


@pytest.mark.clock
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_does_no_harm_to_any_tool(name):
    sane = {"query": "softmax of long rows"}
    before = tools.call("search_knowledge", sane)
    for tool in PUBLISHED:
        began = time.perf_counter()
        answer = tools.call(tool, arguments(tool, HOSTILE[name]))
        assert time.perf_counter() - began < 5, tool
        assert len(answer.text) <= MAX_PAGE_CHARS, tool
        assert answer.text.strip(), tool
        assert answer.is_error == (tool == "get_page"), tool
    assert tools.call("search_knowledge", sane) == before


def test_context_moves_the_pages_that_fit_it_up():
    query = {"query": "how many rows a program"}
    alone = tools.call("search_knowledge", query).hits
    within = tools.call("search_knowledge", query | {"context": "depthwise convolution stencil with a halo"}).hits
    place = within.index("depthwise-convolution")
    assert "depthwise-convolution" not in alone or place < alone.index("depthwise-convolution")


@pytest.mark.parametrize("kind", KINDS)
def test_get_page_gives_every_page_whole(kind):
    for page in library(kind).pages.values():
        answer = tools.call("get_page", {"page_id": page.id}, kind)
        assert not answer.is_error
        assert answer.hits == (page.id,)
        assert all(section.heading in answer.text for section in page.sections)
        assert not answer.text.endswith("[...]")
        assert tools.call("get_page", {"page_id": f"[{page.id}]"}, kind).text == answer.text


def test_get_page_gives_one_section():
    page = library("local").pages["softmax-online"]
    section = page.sections[1]
    answer = tools.call("get_page", {"page_id": f"softmax-online#{section.heading.upper()}"})
    assert section.text.splitlines()[0] in answer.text
    assert page.sections[2].heading not in answer.text.replace(section.text, "")


def test_get_page_names_the_nearest_for_an_unknown_id():
    answer = tools.call("get_page", {"page_id": "softmax-onlin"})
    assert answer.is_error
    assert "[softmax-online]" in answer.text


# --- failures and code

LOGS = {
    "out of resource: shared memory, Required: 270336, Hardware limit: 232448.": "error-out-of-resources",
    "RuntimeError: CUDA error: an illegal memory access was encountered": "error-illegal-memory-access",
    "CompilationError: at 7:11:\n    y = z\n        ^\nNameError('z is not defined')": "error-triton-compilation",
    "ValueError: arange's range must be a power of 2": "error-shape-constexpr",
    "RuntimeError: Error building extension 'softmax_ext'": "error-inline-build",
}


@pytest.mark.parametrize("log", LOGS)
def test_a_known_error_message_leads_to_its_page(log):
    answer = tools.call(
        "diagnose_failure", {"symptoms": "my kernel does not run", "logs": f"Traceback\n  line\n{log}\n"}
    )
    assert answer.hits[0] == LOGS[log]
    assert f"[{LOGS[log]}]" in answer.text


def test_an_error_message_at_the_end_of_a_long_log_is_found():
    log = "step done\n" * 20_000 + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert tools.call("diagnose_failure", {"symptoms": "", "logs": log}).hits[0] == "error-illegal-memory-access"


@pytest.mark.clock
@pytest.mark.parametrize("kind", KINDS)
def test_no_signature_takes_long_on_text_made_to_slow_it_down(kind):
    texts = ["a" * 16_000, "error " * 2600, "(" * 16_000, "x: 1, " * 2600, " \n" * 8000, "0" * 8000 + "." * 8000]
    for page in library(kind).pages.values():
        for pattern in page.signatures:
            for text in texts:
                began = time.perf_counter()
                pattern.search(text)
                assert time.perf_counter() - began < 1, (page.id, pattern.pattern)
