"""A made trace on disk: the trace, its truth, and a note that says it was made.

Beside the trace stands ``truth.json``, which no run reads and no trace contains::

    {"schema": 1,
     "recipe": {"preset": "dataset", "jobs": 98, "seed": 7, "knobs": {}},
     "jobs": {"Job1": {
         "story": "double",                    healthy, software, plain, double, silent or late
         "onset": {"47d7:...": 612},           node → whole seconds since the job's start
         "onset_time": {"47d7:...": "1969-10-15 13:59:25"},    the same as the job's own text
         "fault": {"47d7:...": "gpu_memory"},  node → class of its fault
         "cascade": 618,                       second at which the fleet noticed, or null
         "false_wave": null}}}                 second of a fleet-wide false wave, or null

A detector is at best judged by it: ``onset`` is when the fault began, which no real trace tells.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from replay.errors import ReplayError, UsageError
from replay.traces.write import write as write_trace

if TYPE_CHECKING:
    import os

    from replay.traces.locate import Form
    from replay.traces.synth.make import Made

__all__ = ["SCHEMA", "command", "write"]

SCHEMA = 1
TRUTH_FILE = "truth.json"
README_FILE = "README.md"


def write(made: Made, target: str | os.PathLike[str], form: Form = "parquet") -> Path:
    """Write a made trace, its ``truth.json`` and its README into a folder.

    Args:
        made: What :func:`replay.traces.synth.make` made.
        target: The folder; it must not exist, or be empty.
        form: ``"folders"``, ``"jsonl"`` or ``"parquet"``.

    Raises:
        UsageError: The target is there already, or is named as a file.
        ReplayError: It cannot be written.
    """
    target = Path(target)
    if {".jsonl", ".ndjson"} & set(target.suffixes):
        raise UsageError(f"{target} is named as a file.", "a folder: its truth.json goes there too")
    write_trace(made.trace, target, form)
    truth = {"schema": SCHEMA, "recipe": made.recipe, "jobs": made.truth}
    readme = target / README_FILE  # a table form has one already, which the hub's tools read
    try:
        (target / TRUTH_FILE).write_text(json.dumps(truth, indent=1) + "\n", "utf-8")
        before = readme.read_text("utf-8") + "\n" if readme.exists() else ""
        readme.write_text(before + _readme(made, target.name, form), "utf-8")
    except OSError as error:
        raise ReplayError(f"{target} cannot be written: {error}.") from None
    return target


def command(made: Made, target: str, form: str) -> str:
    """The command line that makes this trace."""
    recipe = made.recipe
    knobs = "".join(f" -k {name}={value:g}" for name, value in recipe["knobs"].items())
    return (
        f"alert-replay synth --preset {recipe['preset']} --jobs {recipe['jobs']} "
        f"--seed {recipe['seed']}{knobs} --to {form} {target}"
    )


def _readme(made: Made, name: str, form: str) -> str:
    return f"""\
# Synthetic alert trace

This is not production data. It was made by alert-replay {version("alert-replay")} from random numbers:

    {command(made, name, form)}

{len(made.trace)} jobs, {made.trace.events.num_rows} alerts. The same command makes the same alerts on
every machine. `truth.json` tells when each fault began; runs never read it.
"""
