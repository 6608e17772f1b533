"""Gates as JUnit XML and as annotations of a build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from replay.report.table import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.scoring import GateResult, Score

__all__ = ["github_annotations", "junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(score: Score, results: Sequence[GateResult]) -> str:
    """One test case per gate and detector, passing ones too; without gates, one per detector."""
    failed = sum(not result.passed for result in results)
    cases = [_case(result) for result in results] or [
        f'    <testcase classname={_attribute(name)} name={_attribute("scored")} time="0"/>'
        for name in score.detectors
    ]
    counts = f'tests="{len(cases)}" failures="{failed}" errors="0" skipped="0" time="0"'
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
    head = (
        f"    <testcase classname={_attribute(result.detector)} "
        f'name={_attribute(result.gate)} time="0"'
    )
    if result.passed:
        return f"{head}/>"
    text = escape(_NOT_XML.sub("?", result.message))
    return (
        f'{head}>\n      <failure type="gate" message={_attribute(result.message)}>'
        f"{text}</failure>\n    </testcase>"
    )


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", text))


def github_annotations(results: Sequence[GateResult]) -> list[str]:
    """Workflow commands that mark gates which were not met as errors of the build."""
    return [
        f"::error title={_property(f'{result.detector}: {result.gate}')}::{_data(result.message)}"
        for result in results
        if not result.passed
    ]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
