"""The type of every option that is a length of time."""

from __future__ import annotations

from typing import Any

import click

from replay.errors import UsageError

__all__ = ["Duration"]


class Duration(click.ParamType[float]):
    """A number of seconds, or of another unit that is named."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, _ctx: click.Context | None
    ) -> float:
        """Read it.

        Raises:
            UsageError: It is none.
        """
        from replay.timeline.schedule import seconds

        try:
            return seconds(value)
        except UsageError as error:
            name = f"{param.opts[-1]}: " if param else ""
            raise UsageError(name + error.what, error.remedy) from error
