"""A folder with all that a Prometheus needs to watch a replay: its rules, and its configuration.

Everything in it is rescaled to the speed of the replay. Nothing is started.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from detectors.rules.documents import read_text
from detectors.rules.durations import format_duration
from detectors.rules.files import parse_rules
from detectors.rules.program import milliseconds
from detectors.rules.rescale import rescale
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Stack", "write_stack"]

_MARK = "# Written by alert-replay; written anew with every run.\n"


@dataclass(frozen=True, slots=True)
class Stack:
    """What was written.

    Attributes:
        alerts: Names of the alerts in the rule file.
        commands: What to type to start what is wanted.
        step_s: Wall seconds between two evaluations.
        delay_s: Wall seconds that the Alertmanager may wait; 0 without one.
        warnings: What was left as it is in the rules and may be meant otherwise.
    """

    alerts: tuple[str, ...]
    commands: tuple[str, ...]
    step_s: float
    delay_s: float
    warnings: tuple[str, ...]


def write_stack(
    file: str,
    folder: str,
    speed: float,
    target: str,
    run: str,
    *,
    scrape: str = "15s",
    interval: str = "15s",
    alertmanager: str = "",
) -> Stack:
    """Write ``prometheus.yml``, ``rules.yml`` and perhaps ``alertmanager.yml`` to a folder.

    Args:
        file: The rule file, in trace time.
        folder: Where to write; made if it is not there.
        speed: Trace seconds per wall second.
        target: ``HOST:PORT`` where the replay shows its metrics and takes alerts.
        run: Id of the run; alerts bear it as the label ``replay``.
        scrape: Trace time between scrapes.
        interval: Trace time between evaluations, where a group does not say.
        alertmanager: ``HOST:PORT`` of an Alertmanager in between, if there is to be one.

    Raises:
        RuleFileError: The rules are bad, or cannot be rescaled.
        UsageError: The speed does not fit, or the folder cannot be written.
    """
    factor = Fraction(repr(speed))
    done = rescale(read_text(file), factor, file, milliseconds(scrape))

    def scaled(text: str) -> str:
        return format_duration(max(1, round(milliseconds(text) / factor)))

    files = {
        "rules.yml": done.text,
        "prometheus.yml": _prometheus(
            scaled(scrape), scaled(interval), run, target, alertmanager or target
        ),
    }
    prometheus = (
        f"prometheus --config.file={folder}/prometheus.yml --storage.tsdb.path={folder}/data-{run}"
        f" --query.lookback-delta={scaled('5m')} --rules.alert.resend-delay={scaled('1m')}"
        " --web.listen-address=127.0.0.1:9090 --log.level=warn"
    )
    commands = [prometheus]
    waits = {name: scaled(text) for name, text in _WAITS.items()}
    if alertmanager:
        files["alertmanager.yml"] = _alertmanager(waits, target)
        commands.insert(
            0,
            f"prometheus-alertmanager --config.file={folder}/alertmanager.yml"
            f" --storage.path={folder}/alertmanager-{run} --cluster.listen-address="
            f" --web.listen-address={alertmanager} --log.level=warn",
        )
    _write(Path(folder), files)
    return Stack(
        parse_rules(done.text, file).alerts,
        tuple(commands),
        milliseconds(scaled(interval)) / 1000,
        milliseconds(waits["group_wait"]) / 1000 if alertmanager else 0.0,
        done.warnings,
    )


_WAITS = {
    "group_wait": "30s",
    "group_interval": "5m",
    "repeat_interval": "4h",
    "resolve_timeout": "5m",
}
"""An Alertmanager's own defaults, which are times of the world and have to go faster as well."""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _prometheus(scrape: str, interval: str, run: str, target: str, receiver: str) -> str:
    return f"""{_MARK}global:
  scrape_interval: {scrape}
  scrape_timeout: {scrape}
  evaluation_interval: {interval}
  external_labels:
    replay: {_quoted(run)}
rule_files: [rules.yml]
alerting:
  alertmanagers:
  - static_configs:
    - targets: [{_quoted(receiver)}]
scrape_configs:
- job_name: alert-replay
  static_configs:
  - targets: [{_quoted(target)}]
"""


def _alertmanager(waits: dict[str, str], target: str) -> str:
    return f"""{_MARK}global:
  resolve_timeout: {waits["resolve_timeout"]}
route:
  receiver: alert-replay
  group_by: ["..."]
  group_wait: {waits["group_wait"]}
  group_interval: {waits["group_interval"]}
  repeat_interval: {waits["repeat_interval"]}
receivers:
- name: alert-replay
  webhook_configs:
  - url: {_quoted(f"http://{target}/api/v1/webhook/alertmanager")}
    send_resolved: true
"""


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder / name for name in files if name != "rules.yml")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from error


def _check_ours(paths: Iterable[Path]) -> None:
    """Refuse to write over what somebody else wrote."""
    for path in paths:
        if path.exists() and not path.read_text("utf-8", "replace").startswith(_MARK):
            raise UsageError(f"{path} was not written by alert-replay.", "--stack ANOTHER-FOLDER")
