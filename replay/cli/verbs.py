"""The door of the command line: finds a verb without importing the others."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import click

import replay
from replay.cli.output import note, show_origin
from replay.errors import PluginError, ReplayError

__all__ = ["VERBS", "cli", "run_verb"]

# verb → (module below replay.cli, command in it, one line of help)
VERBS: dict[str, tuple[str, str, str]] = {
    "validate": ("traces", "validate", "Check a trace; say what is wrong, where, and what to do."),
    "convert": ("traces", "convert", "Write a trace in another form, without loss."),
    "jobs": ("traces", "jobs", "List the jobs of a trace."),
    "info": ("traces", "info", "Describe one job, or a whole trace."),
    "fetch": ("traces", "fetch", "Download the published data set once, and keep it."),
    "anonymize": ("traces", "anonymize", "Make your own traces shareable."),
    "synth": ("synth", "synth", "Make a synthetic trace, seeded."),
    "run": ("run", "run", "Replay a trace into detectors and score them."),
    "publish": ("publish", "publish", "Play a trace into a Kafka topic."),
    "detect": ("detect", "detect", "Judge what is published to a topic, on many machines."),
    "score": ("score", "score", "Score a verdict log that anyone wrote."),
    "bench": ("bench", "bench", "Every detector on every job, on a leaderboard."),
    "fit": ("fit", "fit", "Let a detector learn from jobs whose answer is known."),
    "compare": ("compare", "compare", "Compare two runs on the same jobs."),
    "detectors": ("detectors", "detectors", "List, show or start detectors."),
}

COMMANDS = "alert_replay.commands"
"""Entry-point group of verbs that plug-ins add: name → click command."""

OURS = {"detectors.rules.commands:rules": "Put Prometheus alerting rules on trial."}
"""Commands that come along but enter by that door → one line of help."""


class Verbs(click.Group):
    """A group whose commands are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of the verbs, in the order they are used in; those of plug-ins follow."""
        return [*VERBS, *_plugged()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one verb, ours or a plug-in's; None where there is none."""
        if cmd_name in VERBS:
            module, attribute, _ = VERBS[cmd_name]
            command = getattr(importlib.import_module(f"replay.cli.{module}"), attribute)
        elif cmd_name in _plugged():
            from replay.plugins import load

            command = load(COMMANDS, cmd_name, "verb")
        else:
            return None
        if not isinstance(command, click.Command):
            raise PluginError(f"The verb {cmd_name!r} is no click command.")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with a suggestion for a word that is nearly a verb."""
        verbs = self.list_commands(ctx)
        if args and args[0] not in verbs and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], verbs, n=1)
            ctx.fail(
                f"There is no verb {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else "")
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the verbs from the table, so that help imports nothing."""
        with formatter.section("Commands"):
            ours = [(name, line) for name, (_, _, line) in VERBS.items()]
            formatter.write_dl([*ours, *_plugged().items()])


def _plugged() -> dict[str, str]:
    """Verbs of plug-ins → where they come from; none is imported."""
    from importlib.metadata import entry_points

    return {
        point.name: OURS.get(
            point.value, f"A plug-in of {point.dist.name if point.dist else point.module}."
        )
        for point in sorted(entry_points(group=COMMANDS), key=lambda point: point.name)
        if point.name not in VERBS
    }


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(replay.__version__, prog_name="alert-replay")
@click.option("--debug", is_flag=True, help="Show how an error came about.")
def cli(**_: Any) -> None:
    """Replay the alert history of an LLM training job; score who gets blamed, and how early."""


def run_verb(arguments: list[str]) -> int:
    """Run one verb; give the exit code.

    Args:
        arguments: The words after the command's name.
    """
    words = [word for word in arguments if word != "--debug"]  # which may stand anywhere
    debug = len(words) < len(arguments)
    try:
        code = cli.main(args=words, prog_name="alert-replay", standalone_mode=False, obj=debug)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001 - a sentence, unless more is asked for
        if debug:
            show_origin(error)
        if isinstance(error, ReplayError):
            sentence, code = str(error), error.exit_code
        else:
            sentence, code = _unforeseen(error), 1
        note(f"alert-replay: {sentence}")
        return code
    return code if isinstance(code, int) else 0


def _unforeseen(error: Exception) -> str:
    """What nobody thought of, in a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}."
    return (
        f"A mistake of ours: {type(error).__name__}: {error}"
        "  Try: the same as alert-replay --debug ..., and report what it says"
    )
