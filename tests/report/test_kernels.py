"""The page's section of judged sources: every kept source, and what an optimised kernel changed."""

from types import SimpleNamespace

from conftest import ROOT

from repro.bundle.write import Bundle
from repro.report import document, kernels, page

RUN = ROOT / "artifacts" / "results" / "h100-pinned" / "20261128T000308Z-run"


def test_each_problem_opens_to_the_source_that_was_judged():
    drawn = document.build([Bundle.open(RUN)])
    (section,) = (section for section in drawn.sections if section.id == "kernels")
    assert len(section.codes) == 10 and "negative" not in str([code.title for code in section.codes])
    code = section.codes[0]
    assert code.text.startswith('"""KernelBench level 1, problem 36') and code.verdict == "correct"
    html = page.render(drawn, {figure.id: "" for figure in drawn.figures})
    assert '<a href="#kernel-1">L1_36</a>' in html and 'id="kernel-1"' in html


def test_an_optimised_kernel_shows_what_changed_in_the_input_kernel():
    texts = {"a": b"BLOCK = 64\nx = 1\n", "b": b"BLOCK = 256\nx = 1\n"}
    given = [SimpleNamespace(name=f"solution_{at}.py", kept=kept) for at, kept in enumerate("ab")]
    verdicts = [SimpleNamespace(solution=name) for name in ("input_kernel", "optimized")]
    each = SimpleNamespace(source=SimpleNamespace(bundle=SimpleNamespace(read=texts.get)),
                           row=SimpleNamespace(inputs=given), result=SimpleNamespace(results=verdicts),
                           verdict=verdicts[1])  # fmt: skip
    assert kernels._changes(each, texts["b"].decode()).splitlines()[3:] == ["-BLOCK = 64", "+BLOCK = 256", " x = 1"]
