r"""Texts of others, such as names and messages, with nothing in them that is not seen.

A terminal obeys control characters (ESC, and what they begin), and lines with characters for the
direction of writing read otherwise than they are. Both are shown as Python writes them: `\x1b`.
GitHub Actions obeys lines that begin with `::error::` or `##[error]`: a space breaks them.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

# Control characters but for tab and line feed; marks, embeddings, overrides and isolates of
# direction (Unicode's Bidi_Control); separators of lines and paragraphs; halves of surrogate pairs,
# which no encoding takes.
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_COMMAND = re.compile(r"(?m)(^|\s)(:(?=:[a-z-]+[^:\n]*::)|#(?=#\[))")

Value = TypeVar("Value")
_NUMBERS = (float, int, bool, type(None))  # most of what a record holds


def escape_invisible(text: str) -> str:
    """The text, each such character written as its escape, and commands broken."""
    text = UNSEEN.sub(_escape, text) if UNSEEN.search(text) else text
    return _COMMAND.sub(r"\1\2 ", text) if "::" in text or "##[" in text else text


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Words as people list them: "a", "a and b", "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def visible_in(value: Value) -> Value:
    """The record, or tuple, or mapping, with all its texts so written; itself where they are."""
    changed: object = value
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, str) and type(value) is str:
        changed = escape_invisible(value)
    elif isinstance(value, tuple):
        items = tuple(map(visible_in, value))
        changed = value if all(map(operator.is_, items, value)) else items
    elif isinstance(value, Mapping):
        changed = dict(zip(map(visible_in, value), map(visible_in, value.values()), strict=True))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        shown = zip(parts, map(visible_in, parts.values()), strict=True)
        texts = {name: new for name, new in shown if new is not parts[name]}
        changed = dataclasses.replace(value, **texts) if texts else value
    return changed  # type: ignore[return-value] # of the same type, piece by piece
