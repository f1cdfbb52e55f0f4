"""The code blocks of a page of Markdown, and what the page says that they print.

A block that is not run says why in a comment above its fence, `<!-- not run: REASON -->`; one that
takes long, `<!-- slow: REASON -->`. `<!-- numbers of one size -->` above a text allows numbers to
differ by a factor of two: those that depend on how a processor sums.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from columns import OPTIONAL

FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENTS = re.compile(r"((?:<!-- .*? -->\s*)*)\Z", re.DOTALL)
SECONDS = re.compile(r"\b\d+\.\d+ s\b")
# What may stand between a program and what it prints: comments, and the head of a folded block.
BETWEEN = re.compile(r"\s*(<details>\s*<summary>[^\n]*</summary>\s*)?(<!-- .* -->)?\s*")
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?")


@dataclass(frozen=True)
class Block:
    """A piece of code: its language, where it begins, why it is not run, what it prints."""

    language: str
    code: str
    line: int
    said: str  # in the comments above it
    shown: str | None = None
    loose: bool = False

    @property
    def not_run(self) -> str:
        return self._after("not run")

    @property
    def slow(self) -> str:
        return self._after("slow")

    def _after(self, word: str) -> str:
        found = re.search(rf"<!-- {word}: (.+?) -->", self.said, re.DOTALL)
        return found[1] if found else ""


def blocks_of(text: str) -> Iterator[Block]:
    """The programs and sessions of a page, in order, each with the text right below it."""
    fences = list(FENCE.finditer(text))
    elsewhere = re.search(r"<!-- sessions: (\S+) -->", text)
    for place, fence in enumerate(fences):
        language, code = fence.groups()
        if language not in ("python", "console"):
            continue
        said = COMMENTS.search(text, 0, fence.start())[1]
        below = fences[place + 1] if place + 1 < len(fences) else None
        between = text[fence.end() : below.start()] if below else ""
        shown = None
        if language == "console":
            code, _, shown = code.partition("\n")
            said += f"<!-- not run: by this test, but by {elsewhere[1]} -->" if elsewhere else ""
        elif below and below[1] == "text" and BETWEEN.fullmatch(between):
            shown = below[2]
        loose = "numbers of one size" in between
        yield Block(language, code, text.count("\n", 0, fence.start(2)), said, shown, loose)


def needed_by_code(blocks: list[Block]) -> set[str]:
    """The optional packages that the blocks of a page import."""
    found: set[str] = set()
    for block in blocks:
        if block.language == "python" and not block.not_run:
            for node in ast.walk(ast.parse(block.code)):
                names = [alias.name for alias in getattr(node, "names", ())]
                modules = [getattr(node, "module", None)] if hasattr(node, "module") else names
                found |= {str(name).split(".")[0] for name in modules}
                found |= {str(name).split(".")[-1] for name in modules if "gradproof." in str(name)}
        elif block.language == "console":
            found.add("torch")
    return found & set(OPTIONAL)


def run_python(block: Block, names: dict, page: str) -> str:
    """Run a program among the names of its page, and its tests; what it printed."""
    before = set(names)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, page, "exec", dont_inherit=True), names)
        for name in set(names) - before:
            if name.startswith("test_") and not inspect.signature(names[name]).parameters:
                names[name]()
    return printed.getvalue()


def run_console(block: Block) -> str:
    """Run the command behind `$`; what it printed."""
    from gradproof import cli

    program, *arguments = shlex.split(block.code.removeprefix("$ "))
    assert program == "gradproof", f"{block.code}: only gradproof is run; say why it is not"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main(arguments)
    return printed.getvalue()


def normal(text: str) -> list[str]:
    """The words, without what differs from run to run and from machine to machine.

    The value of a statistic is rounding, which depends on how sums are vectorised; what is allowed
    does not.
    """
    text = SECONDS.sub("T s", text)
    return re.sub(r"[\w.+-]+ of (?=[\d.e+]+\b)", "V of ", text).split()


def same(printed: str, shown: str, *, loose: bool) -> bool:
    """Whether a page shows what was printed."""
    a, b = normal(printed), normal(shown)
    return len(a) == len(b) and all(
        x == y or (loose and _alike(x, y)) for x, y in zip(a, b, strict=True)
    )


def _alike(printed: str, shown: str) -> bool:
    ends = printed.strip("(),:;"), shown.strip("(),:;")
    if not all(NUMBER.fullmatch(end) for end in ends):
        return False
    a, b = (float(end.replace(",", "").rstrip("%")) for end in ends)
    return a == b or (a * b > 0 and 0.5 <= a / b <= 2)


def with_output(text: str, block: Block, printed: str) -> str:
    """The page with what a block printed in place of what it showed, but for the seconds."""
    assert block.shown is not None
    before = SECONDS.findall(block.shown)
    if len(before) == len(SECONDS.findall(printed)):
        seconds = iter(before)
        printed = SECONDS.sub(lambda _: next(seconds), printed)
    start = text.index(block.code) + len(block.code)
    head, tail = text[:start], text[start:]
    return head + tail.replace(block.shown, printed.rstrip("\n") + "\n", 1)


def pages(root: Path) -> dict[str, Path]:
    return {"README.md": root / "README.md"} | {
        path.relative_to(root).as_posix(): path for path in sorted((root / "docs").rglob("*.md"))
    }
