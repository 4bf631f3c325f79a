"""Texts follow ``docs/style.md``: rejected words, length of sentences, chains of "of"."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STYLE = ROOT / "docs" / "style.md"
PAGES = [
    ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]  # fmt: skip
PACKAGE = ROOT / "src" / "gemmetry"
SCRIPTS = ("benchmarks", "docs/generate", "examples", "tests")
EXCEPTIONS = {("src/gemmetry/cli/experiments.py", "vehicle"): "the option --vehicle"}
"""Why a file, relative to the repository, may contain one of the words."""

_CODE = re.compile(r"^( *)```.*?^\1```|``.+?``|`[^`]+`", re.M | re.S)


@cache
def rejected() -> re.Pattern[str]:
    """The words in the last column of the glossary's tables."""
    glossary = STYLE.read_text(encoding="utf-8").partition("## Glossary")[2]
    rows = [line.split("|") for line in glossary.splitlines() if line.startswith("| ")]
    cells = [row[3] for row in rows if row[3].strip() != "not"]
    words = [word.strip() for cell in cells for word in cell.split(",") if word.strip()]
    phrases = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in words)
    return re.compile(rf"(?<![\w-])(?:{phrases})(?![\w-])", re.I)


def found_in(text: str) -> list[str]:
    """The rejected words of a text, without those in code."""
    return [" ".join(word.split()) for word in rejected().findall(_CODE.sub("`", text))]


LONG_SENTENCES = 700
"""Sentences of docstrings with more than twenty words: a debt, which may only fall."""
CHAINS = 20
"""Docstrings' sentences with three "of" in a row, likewise."""
_CHAIN = re.compile(r"\bof(?:\s+(?!of\b)[\w'’-]+){1,3}\s+of(?:\s+(?!of\b)[\w'’-]+){1,3}\s+of\b")


def sentences_in(source: str) -> Iterator[str]:
    """Sentences of the docstrings of a module; code counts as one word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = _CODE.sub("code", ast.get_docstring(node) or "")
            for paragraph in re.split(r"\n\s*\n|\n\s*[*-] ", text):
                yield from re.split(r"(?<=[.!?;:])\s+", paragraph)


def texts_of(source: str) -> Iterator[str]:
    """The docstrings, messages and comments of a module, and the names of its functions, classes,
    arguments and fields; a string without a space is not text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name.replace("_", " ")
        if isinstance(node, ast.arg):
            yield node.arg.replace("_", " ")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id.replace("_", " ")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    comments = [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    yield " ".join(comments)


def words_in(path: Path) -> list[str]:
    """The rejected words of a page or module, without those that are excepted."""
    text = path.read_text(encoding="utf-8")
    if path == STYLE:
        text = text.partition("## English")[0]  # what follows quotes the words
    if not rejected().search(text.replace("_", " ")):
        return []  # most modules, which are not parsed then
    texts = texts_of(text) if path.suffix == ".py" else [text]
    name = path.relative_to(ROOT).as_posix()
    found = [word for text in texts for word in found_in(text)]
    return [word for word in found if (name, word.lower()) not in EXCEPTIONS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_the_words_of_the_glossary(page):
    assert words_in(page) == []


def test_texts_of_the_source_use_the_words_of_the_glossary():
    scripts = [
        path
        for name in SCRIPTS
        for path in sorted((ROOT / name).rglob("*.py"))
        if path != Path(__file__)  # quotes the words
    ]
    modules = sorted(PACKAGE.rglob("*.py"))
    assert scripts and modules
    found = {path.relative_to(ROOT).as_posix(): words_in(path) for path in scripts + modules}
    assert {name: words for name, words in found.items() if words} == {}


def test_docstrings_have_short_sentences_without_chains():
    found = [
        sentence
        for path in sorted(PACKAGE.rglob("*.py"))
        for sentence in sentences_in(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 5000
    assert len([one for one in found if len(one.split()) > 20]) <= LONG_SENTENCES
    assert len([one for one in found if _CHAIN.search(one)]) <= CHAINS


def test_long_sentences_and_chains_are_found():
    text = "One `a b c`. " + "word " * 21 + ": the end of the rest of the first of two."
    found = list(sentences_in(f'"""{text}"""'))
    assert [len(one.split()) for one in found] == [2, 22, 10]
    assert [bool(_CHAIN.search(one)) for one in found] == [False, False, True]


def test_pages_have_no_chains():
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES if page.suffix == ".md"}
    chains = {
        name: match[0]
        for name, text in texts.items()
        if "This page is generated" not in text[:400]
        if (match := _CHAIN.search(_CODE.sub("code", text)))
    }
    assert chains == {}


def test_rejected_words_are_found_in_text_and_not_in_code():
    assert {"told", "put together", "vehicle"} <= {
        word.lower() for word in found_in("Told, they are put\ntogether in a vehicle.")
    }
    assert found_in("It retold `told` and --vehicle:\n```text\nit said so\n```\nas a_said_b.") == []
    source = (
        'def test_it_is_told(who_asked):\n    """It is told."""\n'
        '    raise E(f"{x} beside it")  # as\n    # asked\n'
    )
    assert [word for text in texts_of(source) for word in found_in(text)] == [
        "told", "asked", "told", "beside", "asked",
    ]  # fmt: skip


def test_counts_are_written_by_one_helper():
    """:func:`gemmetry.domain.units.plural`, in Python and in templates."""
    plural = re.compile(r"""else\s+(['"])(?:e?s)\1|(['"])e?s\2\s+if\b""")
    files = [path for name in ("*.py", "*.j2") for path in sorted(PACKAGE.rglob(name))]
    found = {
        path.name: match[0]
        for path in files
        if (match := plural.search(path.read_text(encoding="utf-8")))
    }
    assert len(files) > 250
    assert found == {}


def test_an_exception_is_needed():
    for name, word in EXCEPTIONS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        texts = texts_of(text) if path.suffix == ".py" else [text]
        assert word in {found.lower() for part in texts for found in found_in(part)}, name
