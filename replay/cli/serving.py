"""What the verbs that can be watched have in common: a port, the metrics on it, and live rules."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from replay.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from replay.live import LiveRules
    from replay.metrics import Metrics
    from replay.runner import Replay
    from replay.web import Notice, Request, Route, Server

__all__ = [
    "LIVE_OPTIONS",
    "LIVE_WORDS",
    "METRICS_OPTIONS",
    "METRICS_WORDS",
    "Service",
    "metrics_of",
    "sentences",
    "served",
    "service",
]

METRICS_OPTIONS = (
    click.option(
        "--metrics",
        metavar="[HOST]:PORT",
        help="Show metrics to a Prometheus at /metrics, and scores at /metrics/score. The host is"
        " 127.0.0.1 unless given; port 0 takes a free one.",
    ),
    click.option(
        "--zero",
        type=click.Choice(["none", "two-step", "cross", "seen"]),
        default="none",
        show_default=True,
        help="What the counters of alerts show before a first alert; seen looks ahead.",
    ),
    click.option("--kinds", default="", metavar="A|B", help="Kinds that --zero cross begins with."),
    click.option(
        "--series-budget",
        type=click.IntRange(1),
        default=5000,
        show_default=True,
        metavar="N",
        help="Warn above so many series of alerts.",
    ),
)
"""Options of a verb that shows metrics."""

LIVE_OPTIONS = (
    click.option(
        "--live-rules",
        metavar="FILE",
        help="Score this Prometheus rule file as a Prometheus of yours evaluates it, live.",
    ),
    click.option(
        "--stack",
        default="stack",
        show_default=True,
        metavar="DIR",
        help="Where to write its configuration and the rules, rescaled to --speed.",
    ),
    click.option(
        "--alertmanager",
        default="",
        metavar="HOST:PORT",
        help="Go through an Alertmanager of yours that listens there.",
    ),
    click.option(
        "--scrape", default="15s", show_default=True, metavar="T", help="Between scrapes."
    ),
    click.option(
        "--interval",
        default="15s",
        show_default=True,
        metavar="T",
        help="Between evaluations of live rules.",
    ),
    click.option(
        "--label", default="ip", show_default=True, help="Label of live rules that names the node."
    ),
    click.option(
        "--wait-for-prometheus",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        metavar="S",
        help="Wall seconds to wait until it has scraped twice.",
    ),
)
"""Options of a verb that scores live rules."""

METRICS_WORDS = frozenset({"metrics", "zero", "kinds", "series_budget"})
LIVE_WORDS = frozenset(
    {"live_rules", "stack", "alertmanager", "scrape", "interval", "label", "wait_for_prometheus"}
)
"""What click calls these options."""


def metrics_of(options: dict[str, Any]) -> Metrics:
    """The metrics, with the counters of alerts as the options want them.

    Raises:
        UsageError: The zero policy lacks its kinds.
    """
    from replay.errors import UsageError
    from replay.metrics import Metrics, Series

    kinds = tuple(filter(None, options["kinds"].split("|")))
    if options["zero"] == "cross" and not kinds:
        raise UsageError("--zero cross needs the kinds to begin with.", "--kinds 'nic_down|hang'")
    return Metrics(Series(options["zero"], kinds, budget=options["series_budget"], note=note))


@dataclass(slots=True)
class Service:
    """What a verb shows and takes over HTTP while it runs.

    Attributes:
        metrics: What it shows.
        server: Where.
        live: Who takes alerts, if anybody does.
    """

    metrics: Metrics
    server: Server
    live: LiveRules | None = None

    def watch(self, replay: Replay) -> None:
        """Show a replay that is about to start."""
        from replay.metrics import pairs_ahead

        if self.metrics.series.looks_ahead:
            note("the zero policy seen looks ahead: rules see which series there will be")
            self.metrics.series.ahead = pairs_ahead(replay.timeline)
        self.metrics.watch(
            player=replay.player,
            tally=replay.tally,
            transit=replay.transit,
            standing=replay.standing,
        )


@contextlib.contextmanager
def service(options: dict[str, Any], speed: str = "") -> Iterator[Service | None]:
    """Serve what the options ask for while the block runs; nothing if they ask for nothing.

    Args:
        options: A command's, with those of :data:`METRICS_OPTIONS` and perhaps
            :data:`LIVE_OPTIONS` in it.
        speed: The speed of the replay, for live rules.

    Raises:
        UsageError: They do not fit.
        TransportError: The port is taken.
        RuleFileError: The rule file is bad.
    """
    rules = options.get("live_rules")
    if not rules and not options["metrics"]:
        yield None
        return
    metrics = metrics_of(options)
    inbox = Inbox() if rules else None
    with served(options["metrics"] or ":0", metrics, inbox) as server:
        live = None
        if inbox is not None:
            live = inbox.live = _live(options, speed, server)
        yield Service(metrics, server, live)


def _live(options: dict[str, Any], speed: str, server: Server) -> LiveRules:
    """Write the stack, and say how to start it."""
    from replay.config import parse_speed
    from replay.errors import UsageError
    from replay.live import LiveRules
    from replay.plugins import load
    from replay.web import parse_address

    factor = parse_speed(speed)
    if factor == "max":
        raise UsageError("Live rules need a speed that Prometheus can follow.", "--speed 60")
    if options["alertmanager"]:
        parse_address(options["alertmanager"])
    run = uuid.uuid4().hex[:12]
    write_stack = load("alert_replay.stacks", "prometheus", "stack")
    stack = write_stack(
        options["live_rules"],
        options["stack"],
        factor,
        server.target_for_others,
        run,
        scrape=options["scrape"],
        interval=options["interval"],
        alertmanager=options["alertmanager"],
    )
    for warning in stack.warnings:
        note(warning)
    note(f"run {run}; the clock starts when Prometheus has scraped twice. Start it:")
    for command in stack.commands:
        note(f"  {command}")
    return LiveRules(
        stack.alerts,
        run,
        label=options["label"],
        step_s=stack.step_s,
        delay_s=stack.delay_s,
        patience_s=options["wait_for_prometheus"],
        about={
            "rules": options["live_rules"],
            "zero": options["zero"],
            "scrape": options["scrape"],
            "interval": options["interval"],
            "alertmanager": options["alertmanager"],
        },
    )


class Inbox:
    """Takes alerts and scrapes on behalf of live rules, which are not there from the start."""

    live: LiveRules | None = None

    def scraped(self) -> None:
        """Somebody has read the metrics."""
        if self.live is not None:
            self.live.scraped()

    def take(self, notices: list[Notice]) -> None:
        """Somebody has posted alerts."""
        if self.live is not None:
            self.live.take(notices)


@contextlib.contextmanager
def served(address: str, metrics: Metrics, live: Inbox | None = None) -> Iterator[Server]:
    """Answer HTTP for as long as the block runs, and say where.

    Args:
        address: As on the command line.
        metrics: What to show.
        live: Who takes alerts, if anybody does.

    Raises:
        UsageError: It is no address.
        TransportError: The port is taken.
    """
    from replay.metrics import CONTENT_TYPE
    from replay.web import Answer, Server, of_alerts, of_webhook, parse_address

    def shown(request: Request) -> Answer:
        if live is not None:
            live.scraped()
        return Answer(metrics.render(request.caller), CONTENT_TYPE)

    routes: dict[tuple[str, str], Route] = {
        ("GET", "/metrics"): shown,
        ("GET", "/metrics/score"): lambda _: Answer(metrics.render_score(), CONTENT_TYPE),
        ("GET", "/healthz"): lambda _: Answer(b"ok\n"),
    }
    if live is not None:
        routes["POST", "/api/v2/alerts"] = _taking(live, of_alerts)
        routes["POST", "/api/v1/webhook/alertmanager"] = _taking(live, of_webhook)
    with Server(parse_address(address), routes) as server:
        note(f"metrics at {server.url}/metrics, scores at {server.url}/metrics/score")
        if server.exposed:
            note(
                f"{server.host} can be reached from other machines, and nobody is asked who they are"
            )
        yield server


def _taking(live: Inbox, read: Callable[[bytes], list[Notice]]) -> Route:
    from replay.web import Answer, BadNotices

    def take(request: Request) -> Answer:
        try:
            live.take(read(request.body))
        except BadNotices as bad:
            return Answer(f"{bad.what}\n".encode(), status=400)
        return Answer(b"{}\n", "application/json")

    return take


def sentences(live: Mapping[str, Any]) -> Iterator[str]:
    """What live rules told, in words."""
    counts = dict(live["notices"])
    taken = counts.pop("taken", 0)
    left = ", ".join(f"{number} {why}" for why, number in counts.items())
    yield (
        f"live rules {live['rules']}, zero {live['zero']}: Prometheus scraped {live['scrapes']} times"
        f" and told {taken} changes"
    ) + (f"; left out: {left}" if left else "")
    words = {
        "rule_s": ("rule", "trace s"),
        "grid_s": ("waiting", "trace s"),
        "delivery_wall_s": ("delivery", "wall s"),
    }
    parts = [
        f"{noun} {found['p50']:.3g} {unit} (p95 {found['p95']:.3g})"
        for key, (noun, unit) in words.items()
        if (found := live["delays"][key]) is not None
    ]
    if parts:
        yield "median delays of its blames: " + ", ".join(parts)
    yield "the Prometheus that you started is still running; it is no longer needed for this"
