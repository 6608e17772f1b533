"""What a person sees while a replay runs: verdict lines, a progress line, and keys that work."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Protocol

import click

from replay.cli.keys import Keys
from replay.cli.output import as_json, printable, writing
from replay.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replay.engine import Player, PlayerState
    from replay.messages import TimedVerdict
    from replay.plugins import DetectorSpec
    from replay.traces import Trace

__all__ = ["Watch", "Watched"]

SHOWN = 1000
"""Most verdict lines; more are counted. A log has them all."""


class Watched(Protocol):
    """What can be watched: a replay, or a player without detectors."""

    @property
    def trace(self) -> Trace:
        """What is played."""

    @property
    def detectors(self) -> Sequence[DetectorSpec]:
        """Who judges it here."""

    @property
    def player(self) -> Player:
        """Takes orders."""


class Watch(Observer):
    """Prints verdicts as they fall, and on a terminal keeps one line of progress below them.

    Args:
        jsonl: Print verdicts as JSON lines, all of them.
        quiet: Print neither verdicts nor progress; keys work all the same.
        terminal: Somebody is there: show progress and listen to keys.
    """

    def __init__(self, *, jsonl: bool = False, quiet: bool = False, terminal: bool = False) -> None:
        self._out = sys.stdout
        self._jsonl = jsonl
        self._quiet = quiet and not jsonl
        self._terminal = terminal
        self._lock = threading.Lock()
        self._said = 0
        self._truth = False
        self._replay: Watched | None = None

    @contextlib.contextmanager
    def on(self, replay: Watched) -> Iterator[None]:
        """Watch a replay for as long as the block runs."""
        self._replay = replay
        self._jobs = {job.id: job for job in replay.trace}
        self._baselines = {spec.name for spec in replay.detectors if spec.cls.baseline}
        if all(spec.cls.baseline for spec in replay.detectors):
            self._baselines = set()
        with contextlib.ExitStack() as stack:
            if self._terminal:
                stack.enter_context(Keys(self._press))
            if self._terminal and not self._quiet:
                stack.enter_context(self._progress(replay.player))
            yield
        if self._said > SHOWN and not self._jsonl:
            self._print(f"and {self._said - SHOWN} more verdicts")

    # --- verdicts -----------------------------------------------------------------------------

    def judged(self, verdict: TimedVerdict) -> None:
        """Print a verdict."""
        if self._quiet:
            return
        if self._jsonl:
            from replay.scoring import verdict_row

            row = verdict_row(verdict, self._jobs[verdict.job], self._said)
            self._said += 1
            self._print(as_json(row))
        elif verdict.detector not in self._baselines:
            self._said += 1
            if self._said <= SHOWN:
                self._print(printable(self._line(verdict)))

    def _line(self, timed: TimedVerdict) -> str:
        from replay.traces.findings import named

        said = timed.verdict
        what = "blames" if said.action == "raise" else "clears"
        parts = [
            f"T{'' if timed.at < 0 else '+'}{clock(timed.at)}",
            named(timed.job),
            timed.detector,
            what,
            "the job" if said.node is None else named(said.node),
            f"({said.score:.3g})" if said.action == "raise" else "",
            " ".join(said.reason.split()),
        ]
        if self._truth and said.node is not None:
            label = self._jobs[timed.job].ip_status.get(said.node, "unlabelled")
            parts.append(f"[{label}]")
        return " ".join(filter(None, parts))

    def _print(self, line: str) -> None:
        with self._lock:
            if self._terminal:
                click.echo("\r\033[K", nl=False, err=True)
            with writing():
                click.echo(line, file=self._out)

    # --- progress -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _progress(self, player: Player) -> Iterator[None]:
        """Show a line of progress, ten times a second, on a thread of its own."""
        over = threading.Event()

        def show() -> None:
            while not over.wait(0.1):
                self._draw(player.state())

        thread = threading.Thread(target=show, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with self._lock:
                click.echo("\r\033[K", nl=False, err=True)

    def _draw(self, state: PlayerState) -> None:
        line = progress_line(state)
        with self._lock:
            sys.stderr.write("\r\033[K" + line)
            sys.stderr.flush()

    # --- keys ---------------------------------------------------------------------------------

    def _press(self, word: str) -> None:
        if self._replay is None:
            return
        player = self._replay.player
        orders: dict[str, Callable[[], object]] = {
            "pause": player.resume if player.state().status == "paused" else player.pause,
            "step": player.step,
            # detectors see every alert before that place, so that nothing they said is lost
            "forward": lambda: player.seek_by(10.0, detectors="catch-up"),
            "back": lambda: player.seek_by(-10.0, detectors="catch-up"),
            "faster": player.faster,
            "slower": player.slower,
            "truth": self._turn_truth,
            "quit": player.stop,
        }
        orders[word]()

    def _turn_truth(self) -> None:
        """Show or hide what the trace says about a blamed node; the detectors never learn it."""
        self._truth = not self._truth


def clock(seconds: float) -> str:
    """Trace seconds as hours, minutes and seconds, to a thousandth.

    Examples:
        >>> clock(754), clock(-3.5), clock(90061.25)
        ('0:12:34', '-0:00:03.5', '25:01:01.25')

    """
    whole, rest = divmod(round(abs(seconds) * 1e3), 1000)
    fraction = f".{rest:03d}".rstrip("0") if rest else ""
    sign = "-" if seconds < 0 else ""
    return f"{sign}{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}{fraction}"


def progress_line(state: PlayerState) -> str:
    """One line: where the replay is, how fast it goes, and how late it is."""
    done = state.position_s - state.begin_s
    whole = state.end_s - state.begin_s
    speed = state.speed_achieved
    parts = [
        f"{clock(round(done))} / {clock(round(whole))}",
        f"{100 * state.progress:.0f} %",
        state.status,
        f"{speed:.3g}x of {state.speed}x" if speed is not None else f"{state.speed}",
        f"{state.alerts} of {state.alerts_total} alerts",
        f"{1e3 * state.lag_wall_s:.1f} ms late",
    ]
    return "  ".join(parts)
