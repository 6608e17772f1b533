"""The verb that makes traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from replay.cli.output import command, note, print_json, print_line, print_table

if TYPE_CHECKING:
    from replay.traces import Form

__all__ = ["synth"]


class Setting(click.ParamType["tuple[str, float]"]):
    """``NAME=NUMBER``."""

    name = "NAME=NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Split and read it; the generator knows which names and ranges there are."""
        name, equals, number = str(value).partition("=")
        try:
            return name.strip(), float(number)
        except ValueError:
            missing = "a number" if equals else "'=' and a number"
            return self.fail(f"{value!r} lacks {missing}; for instance chatty=0.1", param, ctx)


@click.command()
@click.option(
    "--preset",
    default="dataset",
    show_default=True,
    help="dataset, quiet, chatty or stormy.",
)
@click.option("--jobs", default=98, show_default=True, type=click.IntRange(1), help="How many.")
@click.option(
    "--seed",
    default=297,
    show_default=True,
    type=click.IntRange(0),
    help="Same seed, same trace. The model that comes with learned was fitted on 1 to 10.",
)
@click.option(
    "--to",
    "form",
    default="parquet",
    show_default=True,
    type=click.Choice(["folders", "jsonl", "parquet"]),
    help="Form to write.",
)
@click.option(
    "-k", "--knob", "knobs", multiple=True, type=Setting(), help="Turn a knob; repeatable."
)
@click.option(
    "--list-knobs", "listing", is_flag=True, help="List the knobs of the preset, and stop."
)
@click.option("--json", "as_json", is_flag=True, help="Say it as one JSON document.")
@click.argument("out", required=False, type=click.Path())
def synth(
    preset: str,
    jobs: int,
    seed: int,
    form: Form,
    knobs: tuple[tuple[str, float], ...],
    listing: bool,
    as_json: bool,
    out: str | None,
) -> None:
    """Make a synthetic trace in the new folder OUT, with a truth.json that no run reads.

    Presets: dataset is calibrated to the size and difficulty of the published data set; quiet has
    little noise, chatty many shouting nodes, stormy big storms and many duplicates. Of one seed
    they have the same jobs with the same faults.
    """
    if listing:
        _list_knobs(preset, as_json=as_json)
        return
    if out is None:
        raise click.UsageError("Where to? Name a new folder: alert-replay synth OUT")
    from replay.traces.synth import make, write

    made = make(preset, jobs, seed, **dict(knobs))
    written = write(made, out, form)
    told = {"jobs": len(made.trace), "events": made.trace.events.num_rows, "path": str(written)}
    if as_json:
        print_json({"schema": 1, **told})
        return
    print_line(f"{told['jobs']} jobs, {told['events']} events, written to {told['path']}")
    note(f"Next: {command('run', written)}")


def _list_knobs(preset: str, *, as_json: bool) -> None:
    from replay.traces.synth.knobs import describe

    table = describe(preset)
    if as_json:
        print_json({"schema": 1, "knobs": table})
        return
    print_table(
        ["<knob", "value", "<unit", "<what it turns", "<where the number comes from"],
        [
            (row["knob"], f"{row['value']:g}", row["unit"], row["what"], row["source"])
            for row in table
        ],
    )
