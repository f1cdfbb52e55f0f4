"""An interrupt that comes as several signals is one."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gradproof.cli import once


@pytest.fixture(autouse=True)
def pythons_handler() -> Iterator[None]:
    """Python's own, which is not there where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_signal_at_once_does_not_cut_short_what_the_first_one_prints():
    times = iter([10.0, 10.1, 10.4, 20.0])
    told = []
    with once(lambda: next(times)):
        handle = signal.getsignal(signal.SIGINT)
        for _ in range(4):
            try:
                handle(signal.SIGINT, None)
            except KeyboardInterrupt:
                told.append("interrupted")
            else:
                told.append("nothing")
    assert told == ["interrupted", "nothing", "nothing", "interrupted"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_python_takes_its_handler_back_whatever_is_raised():
    with pytest.raises(ValueError, match="theirs"), once():
        raise ValueError("theirs")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_stays(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    with once():
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
