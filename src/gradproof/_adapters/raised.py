"""Who raised an exception: a framework that has no rule for something, the user's code, or ours."""

from __future__ import annotations

from collections.abc import Callable

from gradproof._data.exceptions import first_line
from gradproof._data.frames import has_raise_in_line, is_our_mistake
from gradproof._maps.contract import Unsupported


class unsupported:  # named as a function, of which contextlib would make one that takes nine calls
    """Whatever is raised inside makes a capability missing: Unsupported, with what `why` says.

    Args:
        kinds: of exceptions that do; all where there are none. A mistake of our own never does.
        why: exception -> reason.
        kind: of Unsupported that is raised.
    """

    def __init__(
        self,
        *kinds: type[Exception],
        why: Callable[[Exception], str] = first_line,
        kind: type[Unsupported] = Unsupported,
    ) -> None:
        self._caught, self._why, self._kind = kinds or (Exception,), why, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, self._caught) or isinstance(error, self._kind):
            return
        if not is_our_mistake(error):
            raise self._kind(self._why(error)) from error


def is_raised_by_user(error: BaseException, framework: frozenset[str]) -> bool:
    """Whether code outside a framework's packages, and not ours, raised an exception.

    Its words cannot tell: anyone may say "not implemented". The innermost frame can: it is the
    user's where its line raises something.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    is_users = package not in framework and package != __name__.partition(".")[0]
    return is_users and has_raise_in_line(trace)
