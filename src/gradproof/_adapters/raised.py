"""Who raised an exception: a framework that has no rule for something, or the user's own code."""

from __future__ import annotations

import dis

_RAISE = "RAISE_VARARGS"  # the instruction; without an argument it hands on what it caught


def by_user(error: BaseException, framework: frozenset[str]) -> bool:
    """Whether code outside a framework's packages, and not ours, raised an exception.

    Its words cannot tell: anyone may say "not implemented". The innermost frame can: it is the
    user's where its line has a `raise` of something. Where that line calls, what was called and
    raised left no frame: compiled code, or frames that JAX has removed from the traceback.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in framework or package == __name__.partition(".")[0]:
        return False
    code = trace.tb_frame.f_code
    raises = [one.offset for one in dis.get_instructions(code) if one.opname == _RAISE and one.arg]
    return any(
        line == trace.tb_lineno and any(start <= offset < end for offset in raises)
        for start, end, line in code.co_lines()
    )
