"""Alerts of a Prometheus that scrapes the replay, as verdicts.

Nothing is started here: somebody's Prometheus scrapes the metrics of the run, evaluates rules that
were rescaled to its speed, and posts what fires, straight or through an Alertmanager. Each alert
becomes a verdict of the detector ``prometheus:<alertname>``, and all of them together one of
``prometheus``. A verdict is dated by when it could be known: when it came in.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from replay.api import Verdict
from replay.errors import TransportError
from replay.messages import AlertSlice, JobStarted, TimedVerdict
from replay.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from replay.engine import Player
    from replay.messages import Message
    from replay.timeline import Slot, Timeline
    from replay.web import Notice

__all__ = ["DETECTOR", "RUN_LABEL", "LiveRules"]

DETECTOR = "prometheus"
"""Name of the detector that all alerts together are."""

RUN_LABEL = "replay"
"""Label that says which run an alert belongs to."""

_SECOND = 10**9


@dataclass(slots=True)
class _Moment:
    """Where the replay was when something happened in the world."""

    wall_ns: int
    position_ns: int
    epoch: int
    speed: float

    def at(self, wall_ns: int) -> int:
        """Replay nanoseconds of another wall time, if the speed is the same in between."""
        return self.position_ns + round((wall_ns - self.wall_ns) * self.speed)


@dataclass(slots=True)
class _Delays:
    """Where the time of a blame went."""

    rule_s: list[float] = field(default_factory=list)
    grid_s: list[float] = field(default_factory=list)
    delivery_wall_s: list[float] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            name: {"p50": _quantile(found, 0.5), "p95": _quantile(found, 0.95), "max": max(found)}
            if (found := getattr(self, name))
            else None
            for name in ("rule_s", "grid_s", "delivery_wall_s")
        }


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class LiveRules(Observer):
    """Turns notices into verdicts of one run.

    Args:
        alerts: Names of the alerts that may come.
        run: Which run it is; alerts of another one are left out.
        label: The label that names the node.
        step_s: Wall seconds between two evaluations.
        delay_s: Wall seconds that an Alertmanager in between may wait.
        patience_s: Wall seconds to wait for the first scrapes.
        about: What else the report should know: the rule file, the zero policy.
        unix_ns: Wall time.

    Attributes:
        counts: How many notices were ``taken``, and how many were left out and why:
            ``again`` (told before), ``another run``, ``unknown job``, ``unknown alert``,
            ``before the start``, ``after the end``.
    """

    def __init__(
        self,
        alerts: Sequence[str],
        run: str,
        *,
        label: str = "ip",
        step_s: float = 0.25,
        delay_s: float = 0.0,
        patience_s: float = 60.0,
        about: Mapping[str, str] | None = None,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.names = (DETECTOR, *(f"{DETECTOR}:{alert}" for alert in alerts))
        self.run = run
        self.step_s = step_s
        self.delay_s = delay_s
        self.patience_s = patience_s
        self.about = dict(about or {})
        self.counts: Counter[str] = Counter()
        self._label = label
        self._unix_ns = unix_ns
        self._lock = threading.Lock()
        self._scraped = threading.Condition(self._lock)
        self._scrapes: list[int] = []  # replay times, of the current epoch
        self._scrape_count = 0
        self._slots: dict[str, Slot] = {}
        self._player: Player | None = None
        self._judged: Callable[[TimedVerdict], object] = lambda _: None
        self._epoch = 0
        self._last: _Moment | None = None  # of the last one while it played
        self._alerted: dict[tuple[str, str | None], list[float]] = {}
        self._open: dict[tuple[tuple[str, str], ...], int] = {}
        self._known: set[tuple[tuple[tuple[str, str], ...], int]] = set()
        self._blames: Counter[tuple[str, str, str | None]] = Counter()
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._delays = _Delays()

    def watch(
        self, timeline: Timeline, player: Player, judged: Callable[[TimedVerdict], object]
    ) -> None:
        """Say what is replayed, by whom, and who wants to hear of verdicts."""
        self._slots = {slot.job.id: slot for slot in timeline.slots}
        self._player = player
        self._judged = judged

    # what the world does --------------------------------------------------------------------

    def scraped(self) -> None:
        """Somebody has read the metrics."""
        with self._lock:
            moment = self._moment()
            self._scrape_count += 1
            if moment is not None:
                self._enter(moment.epoch)
                self._scrapes.append(moment.position_ns)
            self._scraped.notify_all()

    def begin(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until the Prometheus has scraped twice: then it is up, and knows its rules.

        Args:
            given_up: Asked ten times a second whether to wait no longer.

        Raises:
            TransportError: It has not, for so long as it is waited for.
        """
        if not self._await_scrapes(2, self.patience_s, given_up) and not given_up():
            raise TransportError(
                f"No Prometheus has read the metrics twice in {self.patience_s:g} s.",
                "start it as said above, in another terminal; --wait-for-prometheus for longer",
            )

    def settle(self) -> None:
        """Wait, after the end, for what was seen before it and is still to be told."""
        if self._await_scrapes(2, 4 * self.step_s + 1.0):
            time.sleep(2 * self.step_s + self.delay_s + 0.2)

    def _await_scrapes(
        self, count: int, patience_s: float, given_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for so many more scrapes; tell whether they came."""
        deadline = time.monotonic() + patience_s
        with self._lock:
            wanted = self._scrape_count + count
            while self._scrape_count < wanted:
                rest = deadline - time.monotonic()
                if rest <= 0 or given_up():
                    return False
                self._scraped.wait(min(rest, 0.1))
        return True

    def take(self, notices: Iterable[Notice]) -> None:
        """Take in what has been posted."""
        with self._lock:
            moment = self._moment()
            if moment is None:
                return
            self._enter(moment.epoch)
            verdicts = [verdict for notice in notices for verdict in self._verdicts(notice, moment)]
        for verdict in verdicts:
            self._judged(verdict)

    # the observer ---------------------------------------------------------------------------

    def published(self, message: Message) -> None:
        """Remember when nodes alerted: delays are counted from there."""
        if isinstance(message, AlertSlice):
            batch = message.batch
            nodes: set[str | None] = {batch.nodes[code] for code in set(batch.node.tolist())}
            with self._lock:
                for node in (*nodes, None):
                    self._alerted.setdefault((batch.job, node), []).append(batch.at)
        elif isinstance(message, JobStarted):
            with self._lock:
                self._enter(message.epoch)

    # the report -----------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """What came in, and where the time of the blames went.

        ``rule_s`` is trace time from the node's first alert until the rule could have fired,
        ``grid_s`` trace time spent waiting for a scrape and an evaluation, and
        ``delivery_wall_s`` wall time from the evaluation until the alert came in.
        """
        with self._lock:
            return {
                **self.about,
                "run": self.run,
                "scrapes": self._scrape_count,
                "notices": dict(sorted(self.counts.items())),
                "delays": self._delays.document(),
            }

    # inside ---------------------------------------------------------------------------------

    def _moment(self) -> _Moment | None:
        """Where the replay is now; past its end, where it would be."""
        if self._player is None:
            return None
        state, now = self._player.state(), self._unix_ns()
        last = self._last
        if state.status == "ended" and last is not None:
            return _Moment(now, last.at(now), last.epoch, last.speed)
        speed = state.speed if state.status == "playing" and state.speed != "max" else 0.0
        self._last = _Moment(now, round(state.position_s * _SECOND), state.epoch, speed)
        return self._last

    def _enter(self, epoch: int) -> None:
        """Begin anew after a jump back."""
        if epoch > self._epoch:
            self._epoch = epoch
            for kept in (self._alerted, self._open, self._blames, self._numbers, self._scrapes):
                kept.clear()

    def _verdicts(self, notice: Notice, moment: _Moment) -> list[TimedVerdict]:
        """What one notice says that was not said before."""
        labels = dict(notice.labels)
        slot = self._slot(labels)
        starts = notice.starts_ns if notice.starts_ns is not None else moment.wall_ns
        over = notice.resolved(moment.wall_ns)
        reason = self._why_not(labels, slot)
        if reason or slot is None:
            self.counts[reason] += 1
            return []
        key, said = notice.labels, []
        if (key, starts) not in self._known:
            self._known.add((key, starts))
            reason = self._outside(slot, moment.at(starts))
            self.counts[reason or "taken"] += 1
            if not reason:
                fresh = key not in self._open  # else its end was not told
                self._open[key] = starts
                if fresh:
                    said += self._change(slot, labels, 1, starts, moment, notice.words)
        elif not (over and self._open.get(key) == starts):
            self.counts["again"] += 1
        if over and self._open.get(key) == starts:
            del self._open[key]
            ends = moment.wall_ns if notice.ends_ns is None else min(notice.ends_ns, moment.wall_ns)
            reason = self._outside(slot, moment.at(ends))
            self.counts[reason or "taken"] += 1
            if not reason:
                said += self._change(slot, labels, -1, ends, moment, "resolved")
        return said

    def _slot(self, labels: dict[str, str]) -> Slot | None:
        if "job_id" not in labels and len(self._slots) == 1:
            return next(iter(self._slots.values()))
        return self._slots.get(labels.get("job_id", ""))

    def _why_not(self, labels: dict[str, str], slot: Slot | None) -> str:
        if labels.get(RUN_LABEL, self.run) != self.run:
            return "another run"
        if f"{DETECTOR}:{labels['alertname']}" not in self.names:
            return "unknown alert"
        return "" if slot is not None else "unknown job"

    @staticmethod
    def _outside(slot: Slot, replay_ns: int) -> str:
        if replay_ns > slot.end_ns:
            return "after the end"
        return "before the start" if replay_ns < slot.begin_ns else ""

    def _change(
        self,
        slot: Slot,
        labels: dict[str, str],
        by: Literal[1, -1],
        wall_ns: int,
        moment: _Moment,
        words: str,
    ) -> list[TimedVerdict]:
        """One alert more, or one less, on a node: the first blames it, the last clears it."""
        node = labels.get(self._label)
        if by > 0:
            self._account(slot, node, wall_ns, moment)
        said = []
        for detector in (f"{DETECTOR}:{labels['alertname']}", DETECTOR):
            before = self._blames[detector, slot.job.id, node]
            self._blames[detector, slot.job.id, node] = before + by
            if min(before, before + by) == 0:
                action: Literal["raise", "retract"] = "raise" if by > 0 else "retract"
                number = self._numbers[detector, slot.job.id]
                self._numbers[detector, slot.job.id] += 1
                said.append(
                    TimedVerdict(
                        self.run,
                        moment.epoch,
                        detector,
                        slot.job.id,
                        number,
                        slot.at(moment.position_ns),
                        Verdict(node, action, reason=words or labels["alertname"]),
                        scheduled_wall=wall_ns / _SECOND,
                        emitted_wall=moment.wall_ns / _SECOND,
                    )
                )
        return said

    def _account(self, slot: Slot, node: str | None, starts: int, moment: _Moment) -> None:
        """Split the time from a node's first alert until now."""
        self._delays.delivery_wall_s.append((moment.wall_ns - starts) / _SECOND)
        alerted = self._alerted.get((slot.job.id, node))
        started = moment.at(starts)
        place = bisect_right(self._scrapes, started)
        if not alerted or not place:
            return
        scraped, fired = slot.at(self._scrapes[place - 1]), slot.at(started)
        seen = bisect_right(alerted, scraped)
        if not seen:
            return
        # the grid costs no more than from one scrape to the evaluation after the next
        longest = slot.at(self._scrapes[place - 2]) if place > 1 else scraped
        shown = max(alerted[seen - 1], longest)
        self._delays.grid_s.append(fired - shown)
        self._delays.rule_s.append(max(0.0, shown - alerted[0]))
