"""Files and texts of strangers: what the one reader refuses, and with which words."""

from __future__ import annotations

import os

import pytest
from test_hostile import FILES

from repro.errors import Unreadable
from repro.system import foreign

MAKE = FILES | {"missing": lambda path: None, "terminal": lambda path: path.symlink_to("/dev/tty")}
REFUSED = {
    "missing": "No such file", "folder": "a folder", "pipe": "a pipe", "socket": "a socket", "device": "a device",
    "terminal": "a device", "link out": "outside of its folder", "link in a circle": "symbolic links",
    "sparse": "1,099,511,627,776 bytes", "not UTF-8": "not UTF-8 at byte 0",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_only_plain_bounded_text_inside_its_folder_is_read(tmp_path, name):
    folder = tmp_path / "stranger"
    folder.mkdir()
    MAKE[name](folder / "x.py")
    with pytest.raises(Unreadable, match=REFUSED[name]):
        foreign.text(folder / "x.py")


def test_a_link_inside_its_folder_is_followed(tmp_path):
    (tmp_path / "v3.py").write_text("\ufeffx = 1\n")
    (tmp_path / "latest.py").symlink_to("v3.py")
    assert foreign.text(tmp_path / "latest.py") == "x = 1\n"
    inner = tmp_path / "round_1"
    inner.mkdir()
    (inner / "x.py").symlink_to("../v3.py")
    assert foreign.read(inner / "x.py", within=tmp_path)
    with pytest.raises(Unreadable):
        foreign.read(inner / "x.py")


@pytest.mark.parametrize("name", ["\x1b[31mred.py", "two\nlines.py", os.fsdecode(b"\xff.py")])
def test_a_name_that_cannot_be_shown_is_refused(tmp_path, name):
    (tmp_path / name).write_text("x = 1\n")
    with pytest.raises(Unreadable, match="Rename it") as raised:
        foreign.named(tmp_path / name)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("source", [
    "(" * 5000, "x = " + "-" * 50_000 + "1", "x = " + "a." * 3000 + "b", "x = " + "[" * 190 + "]" * 190, "x = 1\0",
    b"\xff", b"# coding: none-such\n", "x = " + "9" * 5000, "x =",
])  # fmt: skip
def test_a_program_that_cannot_be_parsed_is_a_syntax_error(source):
    with pytest.raises(SyntaxError):
        foreign.tree(source)


@pytest.mark.parametrize("text", [
    "", "{", '{"a": NaN}', "[1e999]", '["\\ud800"]', '{"\\udfff": 1}', "[" * 70 + "]" * 70, "[" * 100_000, "9" * 5000,
    "1" + "0" * 80, "[" + "0," * 2_000_000 + "0]",
])  # fmt: skip
def test_json_that_is_not_strict_is_a_value_error(text):
    with pytest.raises(ValueError):
        foreign.document(text)
    with pytest.raises(ValueError):
        foreign.document(b"\xff")
