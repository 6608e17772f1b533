"""Planted mistakes: each must be noticed by some test.

Run ``python tests/scoring/mutants.py`` for the table; it exits 1 if a mistake goes unnoticed, or
if the text it replaces is no longer there. Every mistake is planted in memory, in a fresh import
of the scoring room, and the worked examples are run against it until one fails.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import itertools
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SUITES = ("test_worked", "test_log", "test_policy", "test_gate")

# what is wrong, where, the right text, the wrong text
MUTANTS = [
    (
        "late verdicts count",
        "intervals",
        "inside = rows.where(~(early | late))",
        "inside = rows.where(~early)",
    ),
    (
        "early verdicts count",
        "intervals",
        "inside = rows.where(~(early | late))",
        "inside = rows.where(~late)",
    ),
    (
        "the end itself is late",
        "intervals",
        "late = rows.at_ns > close_ns[job]",
        "late = rows.at_ns >= close_ns[job]",
    ),
    ("the start itself is early", "intervals", "early = rows.at_ns < 0", "early = rows.at_ns <= 0"),
    (
        "time 0 is no time",
        "intervals",
        "at_ns = log.time_ns - truth.start_ns[job]",
        "at_ns = np.where(log.time_ns != 0, log.time_ns - truth.start_ns[job], -1)",
    ),
    (
        "seq does not break ties",
        "intervals",
        "order = np.lexsort((seq, packed))",
        'order = np.argsort(packed, kind="stable")',
    ),
    (
        "packed keys overlap",
        "intervals",
        "packed = packed * span + (column - low) // step",
        "packed = packed * (span - 1) + (column - low) // step",
    ),
    (
        "a revision moves the time",
        "intervals",
        "opening = rows.raises & ~was_open",
        "opening = rows.raises",
    ),
    (
        "an orphan closes",
        "intervals",
        '"orphan_retractions": ~rows.raises & ~was_open',
        '"orphan_retractions": ~rows.raises & was_open',
    ),
    (
        "hold does not delay",
        "intervals",
        "found.at_ns[blamed] = starts_ns[chosen] + hold_ns",
        "found.at_ns[blamed] = starts_ns[chosen]",
    ),
    (
        "hold must be exceeded",
        "intervals",
        "counts = ends_ns - starts_ns >= hold_ns",
        "counts = ends_ns - starts_ns > hold_ns",
    ),
    (
        "final looks at any raise",
        "intervals",
        "counts = final & open_at_end[unit]",
        "counts = final",
    ),
    (
        "final takes the first interval",
        "intervals",
        "final[:-1] = unit[1:] != unit[:-1]",
        "final[1:] = unit[1:] != unit[:-1]",
    ),
    (
        "ever takes the last score",
        "intervals",
        "np.maximum.reduceat(rows.score[raised], begin)",
        "rows.score[raised][np.append(begin[1:], len(raised)) - 1]",
    ),
    (
        "grace is forgotten",
        "intervals",
        "close_ns = truth.end_ns + _ns(policy.grace_s)",
        "close_ns = truth.end_ns",
    ),
    (
        "only labelled nodes alarm a job",
        "intervals",
        "np.minimum.at(alarm_ns, rows.unit_job[found.blamed], found.at_ns[found.blamed])",
        "found.blamed[rows.unit_kind != LABELLED] = False\n    np.minimum.at(alarm_ns, rows.unit_job[found.blamed], found.at_ns[found.blamed])",
    ),
    ("late hits are hits twice", "intervals", "late=late_raised & ~raised", "late=late_raised"),
    (
        "0/0 is 0",
        "sheet",
        "quotient = np.full(np.shape(denominator), np.nan)",
        "quotient = np.zeros(np.shape(denominator))",
    ),
    (
        "0/0 is 1",
        "sheet",
        "quotient = np.full(np.shape(denominator), np.nan)",
        "quotient = np.ones(np.shape(denominator))",
    ),
    (
        "f1 is the mean of precision and recall",
        "accuracy",
        "return divide((1 + square) * tp, (1 + square) * tp + square * fn + fp)",
        "return (divide(tp, tp + fp) + divide(tp, tp + fn)) / 2",
    ),
    ("beta weighs the wrong mistake", "accuracy", "square * fn + fp)", "fn + square * fp)"),
    (
        "macro counts undefined jobs as 0",
        "accuracy",
        'sheet.ratio(f"{name}_macro", np.where(defined, rates, 0.0), defined, why)',
        'sheet.ratio(f"{name}_macro", np.where(defined, rates, 0.0), np.ones_like(defined), why)',
    ),
    (
        "silent healthy jobs do not match",
        "accuracy",
        "matched = (fp == 0) & (fn == 0)",
        "matched = (fp == 0) & (fn == 0) & (tp > 0)",
    ),
    (
        "node-hours of all nodes",
        "accuracy",
        "(counts.fp + counts.tn) * truth.end_ns / HOUR_NS",
        "(counts.fp + counts.tn + counts.tp + counts.fn) * truth.end_ns / HOUR_NS",
    ),
    (
        "ignored nodes are negative",
        "truth",
        "return np.equal(self.state, NEGATIVE)",
        "return np.not_equal(self.state, POSITIVE)",
    ),
    ("collateral in every job", "accuracy", "np.where(tp > 0, fp, 0)", "fp"),
    (
        "strict precision forgets phantoms",
        "accuracy",
        "blame.strangers + blame.phantoms",
        "blame.strangers",
    ),
    (
        "misses are dropped",
        "delay",
        "eligible = sheet.groups.sum(_job_sum(np.ones_like(hit), delays.job, jobs))\n    for percent",
        "eligible = sheet.groups.sum(_job_sum(hit, delays.job, jobs))\n    for percent",
    ),
    (
        "quantiles are interpolated down",
        "delay",
        "rank = -(-percent * totals // 100)",
        "rank = percent * totals // 100",
    ),
    (
        "quantiles by floating point",
        "delay",
        "rank = -(-percent * totals // 100)",
        "rank = np.ceil(percent / 100 * 1.0000001 * totals).astype(np.int64)",
    ),
    (
        "positives without the zero stay in",
        "delay",
        "eligible = truth.positive & zero.known",
        "eligible = truth.positive",
    ),
    (
        "latency is cut at zero",
        "delay",
        "ns = np.where(hit, blame.at_ns[eligible] - zero.at_ns[eligible], 0)",
        "ns = np.where(hit, np.maximum(blame.at_ns[eligible] - zero.at_ns[eligible], 0), 0)",
    ),
    (
        "recall at T leaves T out",
        "delay",
        "soon = delays.hit & (delays.ns <= limit_ns)",
        "soon = delays.hit & (delays.ns < limit_ns)",
    ),
    (
        "misses cost no delay",
        "delay",
        "np.where(delays.hit, np.clip(delays.ns, 0, limit_ns), limit_ns)",
        "np.where(delays.hit, np.clip(delays.ns, 0, limit_ns), 0)",
    ),
    (
        "the censored never leave",
        "delay",
        "order = np.lexsort((ns, group))",
        "order = np.lexsort((ns, ~event, group))",
    ),
    (
        "alerts of the instant were not seen",
        "delay",
        'np.searchsorted(alerts, at_ns[mine], side="right")',
        'np.searchsorted(alerts, at_ns[mine], side="left")',
    ),
    (
        "job_alert is the node's own",
        "truth",
        '"job_alert": Zero("job_alert", at_ns[job], known[job])',
        '"job_alert": Zero("job_alert", node_at, place >= 0)',
    ),
    (
        "the first alert is the last",
        "truth",
        "order = np.lexsort((at_ns, job))",
        "order = np.lexsort((-at_ns, job))",
    ),
    (
        "an onset of 0 is missing",
        "truth",
        "known = np.array([node in onsets.get(job, {})",
        "known = np.array([bool(onsets.get(job, {}).get(node))",
    ),
    (
        "ties by place in the file",
        "ranking",
        "begins = _changes(job[order], score[order], at_ns[order])",
        "begins = np.arange(len(order))",
    ),
    (
        "low scores first",
        "ranking",
        "order = np.lexsort((at_ns, -score, job))",
        "order = np.lexsort((at_ns, score, job))",
    ),
    (
        "later detections first",
        "ranking",
        "order = np.lexsort((at_ns, -score, job))",
        "order = np.lexsort((-at_ns, -score, job))",
    ),
    (
        "jobs without a hit leave the ranks",
        "ranking",
        "sheet.ratio(key, np.where(faulty, per_job, 0.0), faulty, why)",
        "sheet.ratio(key, np.where(faulty, per_job, 0.0), faulty & (per_job > 0), why)",
    ),
    (
        "ac is recall",
        "ranking",
        "divide(found[k], np.minimum(k, positives))",
        "divide(found[k], positives)",
    ),
    (
        "equal scores count one by one",
        "ranking",
        "begins = _changes(group[order], score[order])",
        "begins = np.arange(len(order))",
    ),
    (
        "precision of the pool forgets silent positives",
        "ranking",
        "return divide(area, positives)",
        "return divide(area, np.bincount(sweep.group, weights=sweep.gained, minlength=len(positives)))",
    ),
    ("delay goes on costing", "cost", "0, weights.tau_s)", "0, None)"),
    (
        "early is a gain",
        "cost",
        "/ 1e9, 0, weights.tau_s)",
        "/ 1e9, -weights.tau_s, weights.tau_s)",
    ),
    ("alarms in faulty jobs cost", "cost", "(healthy & blame.alarmed)", "blame.alarmed"),
    ("labels keep their case", "policy", "return label.strip().casefold()", "return label.strip()"),
    (
        "a missing label is positive",
        "policy",
        '{"normal": "negative", "": "ignore", ANYTHING: "positive"}',
        '{"normal": "negative", "": "positive", ANYTHING: "positive"}',
    ),
    (
        "strict lets * cover",
        "policy",
        "if ANYTHING in self.meanings and not self.strict",
        "if ANYTHING in self.meanings",
    ),
    (
        "a late hit may cost more than a miss",
        "policy",
        "if latest > self.c_fn",
        "if latest > 2 * self.c_fn",
    ),
    ("NaN scores pass", "log", "if not abs(value) <= _LARGEST:", "if abs(value) > _LARGEST:"),
    (
        "jobs in the order of their text",
        "log",
        '_places(said.column("job_id"), trace.job_ids)',
        '_places(said.column("job_id"), sorted(trace.job_ids))',
    ),
    (
        "a null metric passes a gate",
        "gate",
        "yield GateResult(str(self), detector, False, _null(score, detector, self.metric))\n            else",
        "yield GateResult(str(self), detector, True, _null(score, detector, self.metric))\n            else",
    ),
    (
        "references are gated",
        "gate",
        "real = [name for name, scored in score.detectors.items() if not scored.baseline]",
        "real = list(score.detectors)",
    ),
    (
        "a drop is a rise",
        "gate",
        "value - before if lower_is_better(self.metric) else before - value",
        "before - value",
    ),
]


class _Planted(importlib.machinery.SourceFileLoader):
    """Loads one module with a mistake in it."""

    def __init__(self, name: str, path: str, right: str, wrong: str) -> None:
        super().__init__(name, path)
        self.right, self.wrong = right, wrong

    def get_code(self, fullname):
        source = Path(self.path).read_text("utf-8").replace(self.right, self.wrong)
        return compile(source, self.path, "exec")


class _Finder:
    """Puts the mistake in the way of the import."""

    def __init__(self, name: str, right: str, wrong: str) -> None:
        self.name, self.right, self.wrong = name, right, wrong

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        file = str(Path(next(iter(path))) / f"{name.rpartition('.')[2]}.py")
        loader = _Planted(name, file, self.right, self.wrong)
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def forget() -> None:
    """Make the next import of the scoring room and of the suites a fresh one."""
    for name in list(sys.modules):
        if name.startswith("replay.scoring") or name in SUITES:
            del sys.modules[name]


def cases(test):
    """The arguments of every parametrized case of a test."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    tables = []
    for mark in marks:
        names, rows = mark.args[0], mark.args[1]
        names = [names] if isinstance(names, str) else list(names)
        tables.append(
            [dict(zip(names, row if len(names) > 1 else [row], strict=True)) for row in rows]
        )
    for chosen in itertools.product(*tables):
        yield {key: value for row in chosen for key, value in row.items()}


def run(test, given) -> bool:
    """Whether a test passes."""
    import conftest  # noqa: PLC0415 - found only once this folder is on the path

    wanted = inspect.signature(test).parameters
    given = {"bench": conftest.Bench(), **given}
    try:
        if "tmp_path" not in wanted:
            test(**{key: given[key] for key in wanted})
        else:
            with tempfile.TemporaryDirectory() as folder:
                given["tmp_path"] = Path(folder)
                test(**{key: given[key] for key in wanted})
    except BaseException:  # noqa: BLE001 - whatever it is, the mistake was noticed
        return False
    return True


def first_failure(near: str = "") -> str | None:
    """Run the suites until a test fails, the one about a module first; the test's name, or None."""
    for suite in sorted(SUITES, key=lambda name: name != f"test_{near}"):
        module = importlib.import_module(suite)
        for name, test in vars(module).items():
            if name.startswith("test_") and not all(run(test, given) for given in cases(test)):
                return f"{suite}.{name}"
    return None


def main() -> int:
    """Plant every mistake in turn; the number of those that went unnoticed."""
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    if broken := first_failure():
        print(f"{broken} fails without any mistake")
        return 1
    import replay.scoring as room  # noqa: PLC0415 - its place on disk, before it is forgotten

    folder = Path(next(iter(room.__path__)))
    unnoticed = 0
    for what, module, right, wrong in MUTANTS:
        if right not in (folder / f"{module}.py").read_text("utf-8"):
            print(f"GONE      {what}: {module}.py no longer says {right!r}")
            unnoticed += 1
            continue
        finder = _Finder(f"replay.scoring.{module}", right, wrong)
        sys.meta_path.insert(0, finder)
        forget()
        try:
            noticed = first_failure(module)
        finally:
            sys.meta_path.remove(finder)
            forget()
        unnoticed += noticed is None
        print(f"{'noticed' if noticed else 'UNNOTICED':9} {what}: {noticed or module}")
    print(f"{len(MUTANTS)} mistakes, {unnoticed} unnoticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
