"""What may be wrong with a rule, an expression or an evaluation."""

from __future__ import annotations

from replay.errors import ConfigError

__all__ = ["EvaluationError", "LanguageError", "RuleFileError", "Unsupported"]


class LanguageError(ConfigError):
    """An expression is not PromQL, or its parts do not fit together."""


class Unsupported(LanguageError):  # noqa: N818 - it is a refusal, and reads as one
    """An expression is PromQL, but holds something that is refused rather than approximated.

    Args:
        construct: What is refused, as the user wrote it.
        reason: Why.
    """

    def __init__(self, construct: str, reason: str) -> None:
        super().__init__(f"{construct} is refused: {reason}")
        self.args = (construct, reason)
        self.construct = construct
        self.reason = reason


class EvaluationError(ConfigError):
    """An expression cannot be evaluated on these samples, as Prometheus could not."""


class RuleFileError(ConfigError):
    """A rule file is bad.

    Args:
        what: What is wrong, in one sentence.
        path: The file, as the user named it.
        line: Its line, counted from 1; None where there is none.
        remedy: One thing to try.

    Examples:
        >>> print(RuleFileError("unknown key 'exprs'", "rules.yml", 7, "expr"))
        rules.yml:7: unknown key 'exprs'.  Try: expr

    """

    def __init__(
        self, what: str, path: str = "", line: int | None = None, remedy: str = ""
    ) -> None:
        place = path + (f":{line}" if line is not None else "")
        text = f"{place}: {what}" if place else what
        super().__init__(text.rstrip(".") + ".", remedy)
        self.args = (what, path, line, remedy)
        self.path = path
        self.line = line
