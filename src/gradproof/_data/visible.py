r"""Texts for people: names and messages of others made visible, and words joined to a list.

A terminal obeys control characters (ESC, and what they begin), and lines with characters for the
direction of writing read otherwise than they are. Both are shown as Python writes them: `\x1b`.
GitHub Actions obeys lines that begin with `::error::` or `##[error]`: a space breaks them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Control characters but for tab and line feed; marks, embeddings, overrides and isolates of
# direction (Unicode's Bidi_Control); separators of lines and paragraphs; halves of surrogate pairs,
# which no encoding takes.
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_COMMAND = re.compile(r"(?m)(^|\s)(:(?=:[a-z-]+[^:\n]*::)|#(?=#\[))")

LISTED = 3  # names that a sentence gives


def escape_invisible(text: str) -> str:
    """The text, each such character written as its escape, and commands broken."""
    return _COMMAND.sub(r"\1\2 ", UNSEEN.sub(_escape, text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Words as people list them: "a", "a and b", "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def short_list(names: Sequence[str]) -> str:
    """Names in a message: "a", "a and b", "a, b, c and 97 more"."""
    if len(names) > LISTED + 1:
        return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more"
    return join_words(names)
