"""The documentation cannot drift: generated parts, links, commands, options, paths and bundles are what they say.

`make docs` (REPRO_UPDATE_DOCS=1) writes the generated parts instead of comparing them.
"""

import ast
import importlib
import os
import pkgutil
import re
import shlex
import tomllib

import documents
import pytest

from repro import config, records
from repro.cli.main import parser
from repro.records.base import Record

DOCUMENTS = [config.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (config.ROOT / "docs").rglob("*.md")
)
NAMES = [str(file.relative_to(config.ROOT)) for file in DOCUMENTS]
UPDATE = "run `make docs`"
# Words of the documents' commands that stand for a reader's own files, and what takes their place here.
STANDS_FOR = {"NUMBER": "36", "DIR": ".", "COPY": ".", "FILE": "f.py", "ID": "L1_36", "…": ""}


def updating():
    return bool(os.environ.get("REPRO_UPDATE_DOCS"))


def text_of(name):
    return (config.ROOT / name).read_text()


def outside_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def commands(name, start):
    """Lines of shell blocks, and pieces of inline code, that begin with a word."""
    text = text_of(name)
    blocks = [
        line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.replace("\\\n", "").split("\n")
    ]
    code = blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return sorted({line.split("  #")[0].split(" # ")[0].strip() for line in code if line.strip().startswith(start)})


# -- generated parts


@pytest.mark.parametrize("name, part", [(name, part) for name, parts in documents.PARTS.items() for part in parts])
def test_a_generated_part_is_what_its_sources_say(name, part):
    file, pattern = config.ROOT / name, documents.block(part)
    text, wanted = file.read_text(), documents.PARTS[name][part]() + "\n"
    if updating():
        file.write_text(pattern.sub(lambda found: found.group(1) + wanted + found.group(3), text))
        return
    assert pattern.search(text).group(2) == wanted, UPDATE


@pytest.mark.parametrize("name", documents.FILES)
def test_a_generated_file_is_what_its_sources_say(name):
    file, wanted = config.ROOT / name, documents.FILES[name]()
    if updating():
        file.parent.mkdir(exist_ok=True)
        file.write_text(wanted)
    assert file.read_text() == wanted, UPDATE


RECORDS = [
    found for module in pkgutil.iter_modules(records.__path__, "repro.records.")
    for found in vars(importlib.import_module(module.name)).values()
    if isinstance(found, type) and issubclass(found, Record) and found.__module__ == module.name
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_record_is_documented(record):
    assert record.__doc__ and [name for name, field in record.model_fields.items() if not field.description] == []


# -- what is written by hand


def test_the_readme_is_short():
    assert len(text_of("README.md").encode()) <= 7000


# -- the folders

PACKAGE = config.ROOT / "repro"
FOLDERS = re.findall(r"^\| (\d+) \| `([\w/]+)/` \| (.+) \|$", text_of("docs/architecture.md"), re.M)


def test_every_folder_is_named_with_the_number_that_the_import_contracts_give_it():
    """And no folder is named that does not exist."""
    (contract,) = [
        each for each in tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
        if each["id"] == "rooms"
    ]  # fmt: skip
    lines = [re.findall(r"\w+", layer) for layer in contract["layers"] if layer != "__main__"]
    wanted = {room: number for number, layer in enumerate(lines, 1) for room in layer}
    there = {str(init.parent.relative_to(PACKAGE)) for init in PACKAGE.rglob("*/__init__.py")}
    assert sorted(name for _, name, _ in FOLDERS) == sorted(there)
    numbers = [int(number) for number, _, _ in FOLDERS]
    assert numbers == [wanted[name.partition("/")[0]] for _, name, _ in FOLDERS] == sorted(numbers)


@pytest.mark.parametrize("name, about", [pytest.param(name, about, id=name) for _, name, about in FOLDERS])
def test_files_that_a_folder_s_line_names_are_in_it(name, about):
    named = re.findall(r"`([\w/]+(?:\.\w+|/))`", about)
    assert [file for file in named if not (PACKAGE / name / file).exists() and not (PACKAGE / file).is_dir()] == []


def test_every_module_says_what_it_is_for():
    assert [str(file) for file in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(file.read_text()))] == []


def headings(file):
    """The anchors that GitHub gives a document's headings."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", file.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_link_leads_somewhere():
    wrong = []
    for file in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", outside_code(file.read_text())):
            if target.startswith(("https://", "../../actions/")):
                continue
            path, _, anchor = target.partition("#")
            there = (file.parent / path).resolve() if path else file
            if not there.exists() or (anchor and anchor not in headings(there)):
                wrong.append(f"{file.name}: {target}")
    assert wrong == []


def test_every_path_that_is_named_is_there():
    wrong = []
    for name in NAMES:
        for path in re.findall(r"`((?:artifacts|tests|docs|repro|requirements|problems)/[\w./*-]+)`", text_of(name)):
            if not list(config.ROOT.glob(path.rstrip("/"))):
                wrong.append(f"{name}: {path}")
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_one_and_takes_its_options(name):
    """A command of two words or three may be a verb that a sentence names, without its arguments."""
    for command in commands(name, "repro "):
        words = [STANDS_FOR.get(word, word) for word in shlex.split(command)[1:]]
        if len(words) <= 2 and not any(word.startswith("-") for word in words):
            assert words[0] in {*documents.verbs(), "VERB", "job", "agent", "gateway"}, command
            continue
        try:
            parser().parse_args([word for word in words if word])
        except Exception as error:
            pytest.fail(f"{command}: {error}")


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_is_one_with_its_variables(name):
    makefile = text_of("Makefile")
    for command in commands(name, "make "):
        for word in shlex.split(command)[1:]:
            if word == "...":
                continue
            variable, is_variable, _ = word.partition("=")
            pattern = rf"^{variable} [?:]?=" if is_variable else rf"^{variable}:"
            assert re.search(pattern, makefile, re.M), f"{command}: {word}"


def test_the_citation_is_one():
    text = text_of("CITATION.cff")
    for field in ("cff-version: 1.2.0", "message:", "title:", "authors:", "  - name: The repro authors"):
        assert re.search(rf"^{field}", text, re.M), field
