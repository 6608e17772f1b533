"""Which node is unlike its peers?"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import RareOnsets
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.windows import Onset
    from replay.api import Alert, Job, Verdict

__all__ = ["Peers"]


class Peers(Detector):
    """Blames the node whose recent kinds are farthest from everybody else's, while that lasts.

    The nodes of a job do the same work, so what one of them shows and the others do not is worth a
    look. Each node is a vector: for every kind that it lately began to raise, how surprising that
    is in this job. A node's distance is the sum, less the median node's. The farthest is blamed
    if it stands out from the rest by a robust z-score and leads the next one clearly; the
    blame is taken back once it shows nothing any more.

    ::

        distance    a 0   b 0   c 19   d 6   e 0        c: z = 19 / (MAD + floor), leads d by far
                                 └─ blamed

    Cost: constant per alert, and a look at the active nodes whenever one of them changes. Source:
    machine-level outlier detection by distance to the other machines, with the median absolute
    deviation in the place of variances.

    Args:
        job: The job to watch.
        window: Seconds for which an onset counts.
        z: How many deviations make an outlier.
        lead: How many times as far as the next node it must be.
        peers: Fewest nodes a job must have.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = Peers(Job("Job1", tuple("abcdefgh")))
        >>> for seq, kind in enumerate(["xid_48", "remap"]):
        ...     _ = detector.observe(Alert("Job1", seq, 900.0 + seq, "b", kind))
        >>> while detector.wake_at is not None and detector.wake_at < 930.0:
        ...     for verdict in detector.advance(detector.wake_at):
        ...         print(verdict.node, verdict.reason)
        b shows remap, xid_48; its peers do not

    """

    def __init__(
        self,
        job: Job,
        *,
        window: float = 60.0,
        z: float = 1.8,
        lead: float = 1.5,
        peers: int = 4,
    ) -> None:
        super().__init__(job)
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        if not z > 0 or not lead >= 1:
            raise ValueError(f"z must be positive and lead at least 1, not {z} and {lead}")
        self._window = window
        self._z = z
        self._lead = lead
        self._enough = len(job.nodes) >= peers
        self._size = len(job.nodes)
        self._onsets = RareOnsets(job)
        self._shows: dict[str, dict[str, Onset]] = {}  # node → kind → onset
        self._expiry: float | None = None
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take the alert down."""
        if self._onsets.add(alert):
            self._set_alarm()
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Take in what is settled, and look if it is time."""
        settled = self._onsets.settled(now)
        for onset in settled:
            self._shows.setdefault(onset.node, {})[onset.kind] = onset
        verdicts: list[Verdict] = []
        if settled or (self._expiry is not None and self._expiry <= now):
            self._forget(now)
            verdicts = self._look(now)
        self._set_alarm()
        return verdicts

    def _set_alarm(self) -> None:
        times = [at for at in (self._onsets.due, self._expiry) if at is not None]
        self.wake_at = min(times, default=None)

    def _look(self, now: float) -> list[Verdict]:
        distances = {
            node: sum(onset.surprise for onset in shown.values())
            for node, shown in self._shows.items()
        }
        verdicts = [
            verdict
            for node in self._docket.accused()
            if node not in distances
            for verdict in self._docket.clear(node, reason="like its peers again")
        ]
        if not distances or not self._enough:
            return verdicts
        middle, deviation = self._spread(list(distances.values()))
        ranked = sorted(distances, key=lambda node: (-distances[node], node))
        first = ranked[0]
        second = distances[ranked[1]] if len(ranked) > 1 else 0.0
        score = (distances[first] - middle) / (deviation + self._onsets.chances(now))
        if score >= self._z and distances[first] >= self._lead * second:
            shown = self._shows[first]
            verdicts += self._docket.blame(
                first,
                score=score,
                reason=f"shows {', '.join(sorted(shown))}; its peers do not",
                evidence=tuple(sorted(onset.seq for onset in shown.values())),
            )
        return verdicts

    def _spread(self, distances: list[float]) -> tuple[float, float]:
        """Median and scaled median absolute deviation over all nodes; most are at 0."""
        silent = self._size - len(distances)
        if silent > len(distances):
            return 0.0, 0.0
        everybody = distances + [0.0] * silent
        middle = median(everybody)
        return middle, 1.4826 * median(abs(distance - middle) for distance in everybody)

    def _forget(self, now: float) -> None:
        """Drop what is older than the window, and see when the next is."""
        self._expiry = None
        for node in list(self._shows):
            shown = self._shows[node]
            for kind, onset in list(shown.items()):
                expiry = onset.at + self._window
                if expiry <= now:
                    del shown[kind]
                elif self._expiry is None or expiry < self._expiry:
                    self._expiry = expiry
            if not shown:
                del self._shows[node]
