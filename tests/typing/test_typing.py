"""The types we ship let a plug-in be checked strictly, and catch what they should."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.once

PLUGIN = Path(__file__).with_name("plugin.py")


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Type-check a file strictly; give what is said."""
    cache = tmp_path_factory.mktemp("mypy")

    def check(path):
        said, problems, _ = api.run(
            [
                "--strict",
                "--config-file=",
                f"--cache-dir={cache}",
                "--follow-imports=silent",
                str(path),
            ]
        )
        return said + problems

    return check


def test_plug_in_is_clean(check):
    assert "Success" in check(PLUGIN)


def test_mistakes_are_found(check, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        PLUGIN.read_text()
        .replace("Verdict(alert.node, reason", "Verdict(alert.seq, reason")
        .replace('"retract"', '"forget"')
        .replace("def finish(self) -> list[Verdict]:", "def finish(self) -> None:")
    )
    said = check(wrong)
    assert '"Verdict" has incompatible type "int"' in said
    assert "Literal['forget']" in said
    assert 'of "finish" incompatible with return type' in said
