from __future__ import annotations

import io
import sys

import pytest

from collsim.cli import progress as bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_run_shows_a_bar_on_a_terminal_and_wipes_it_off(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "QUIET", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with bars.progress("1GiB") as pulse:
        pulse(250_000, 1_000_000)
        pulse(500_000, 1_000_000)
    shown = terminal.getvalue()
    assert "1GiB" in shown
    assert "50%" in shown
    assert "1,000,000 transfers" in shown
    assert shown.rstrip("\r").endswith("\x1b[2K")  # the line is erased


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with bars.progress("8B") as pulse:
        pulse(1, 2)
        pulse(2, 2)
    assert terminal.getvalue() == ""


def test_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(bars, "QUIET", 0.0)
    with bars.progress("1GiB") as pulse:
        pulse(1, 2)
    assert stream.getvalue() == ""


def test_no_bar_once_all_is_done(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "QUIET", 0.0)
    with bars.progress("1GiB") as pulse:
        pulse(2, 2)
    assert terminal.getvalue() == ""


def test_the_bar_goes_when_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "QUIET", 0.0)
    monkeypatch.setenv("TERM", "xterm")

    def interrupted() -> None:
        with bars.progress("1GiB") as pulse:
            pulse(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().rstrip("\r").endswith("\x1b[2K")


def test_stages_are_told_on_a_terminal_in_one_line(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "QUIET", 0.0)
    with bars.stages() as stage:
        stage("1 of 2: ring, building")
        stage("2 of 2: tree, building")
    assert terminal.getvalue() == "\r\x1b[2K1 of 2: ring, building\r\x1b[2K2 of 2: tree, building\r\x1b[2K"


def test_stages_say_nothing_elsewhere_or_at_first(monkeypatch: pytest.MonkeyPatch):
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with bars.stages() as stage:
            stage("1 of 2: ring, building")
        assert stream.getvalue() == ""
