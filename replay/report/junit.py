"""Gates as JUnit XML and as annotations of a build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from replay.report.table import crash, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.scoring import GateResult, Score

__all__ = ["github_annotations", "junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(score: Score, results: Sequence[GateResult]) -> str:
    """One test case per gate and detector, passing ones too; without gates, one per detector.

    A detector that crashed is an error in either.
    """
    failed = sum(not result.passed for result in results)
    crashed = {
        name: crash(scored, score.settings["jobs"])
        for name, scored in score.detectors.items()
        if scored.failures
    }
    cases = [_case(result) for result in results] or [
        f"{_head(name, 'scored')}/>" for name in score.detectors if name not in crashed
    ]
    cases += [_broken(name, "scored", "error", "crash", what) for name, what in crashed.items()]
    counts = (
        f'tests="{len(cases)}" failures="{failed}" errors="{len(crashed)}" skipped="0" time="0"'
    )
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="alert-replay" {counts}>',
            f"  <testsuite name={_attribute(title(score))} {counts}>",
            *cases,
            "  </testsuite>",
            "</testsuites>",
            "",
        )
    )


def _case(result: GateResult) -> str:
    if result.passed:
        return f"{_head(result.detector, result.gate)}/>"
    return _broken(result.detector, result.gate, "failure", "gate", result.message)


def _broken(detector: str, name: str, tag: str, kind: str, message: str) -> str:
    """A case that went wrong."""
    text = escape(_NOT_XML.sub("?", message))
    return (
        f'{_head(detector, name)}>\n      <{tag} type="{kind}" message={_attribute(message)}>'
        f"{text}</{tag}>\n    </testcase>"
    )


def _head(detector: str, name: str) -> str:
    return f'    <testcase classname={_attribute(detector)} name={_attribute(name)} time="0"'


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", text))


def github_annotations(results: Sequence[GateResult]) -> list[str]:
    """Workflow commands that mark gates which failed as errors of the build."""
    return [
        f"::error title={_property(f'{result.detector}: {result.gate}')}::{_data(result.message)}"
        for result in results
        if not result.passed
    ]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
