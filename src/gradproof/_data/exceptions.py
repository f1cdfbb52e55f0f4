"""Texts of exceptions for messages. A class of the user's may raise when its text is asked for."""

from __future__ import annotations

_LETTERS = 160  # of what an exception says, in a summary


def text_of(error: BaseException) -> str:
    """The text of an error; "" where asking for it raises."""
    try:
        return str(error)
    except Exception:  # whatever the text of the user's class raises: it has none then
        return ""


def short_line(text: str) -> str:
    """The first line of a text, short enough for a summary."""
    line, *_ = text.strip().splitlines() or [""]
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 3]}..."


def first_line(error: BaseException) -> str:
    """The first line of an error's text; its type where there is no text."""
    return short_line(text_of(error)) or type(error).__name__


def exception_line(error: BaseException) -> str:
    """`RuntimeError: no such luck`: type and first line of what code has raised."""
    return f"{type(error).__name__}: {short_line(text_of(error))}".removesuffix(": ")
