"""The state machine and the counts against a plain loop over every row."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

NODES = {"a": "normal", "b": "faulty", "c": "faulty", "d": "normal", "e": ""}
ROWS = st.lists(
    st.tuples(
        st.sampled_from([*NODES, "z", "ghost", None]),
        st.integers(-3, 15),
        st.sampled_from([0.0, -1.5, 2.0, 3.25]),
        st.sampled_from(["raise", "raise", "retract"]),
        st.sampled_from(["Job1", "Job2"]),
    ),
    max_size=40,
)
POLICIES = st.one_of(
    st.fixed_dictionaries({"hold_s": st.integers(0, 5), "grace_s": st.integers(0, 4)}),
    st.fixed_dictionaries({"kind": st.just("final"), "grace_s": st.integers(0, 4)}),
)
END = 10
COUNTED = (
    *("tp", "fp", "fn", "tn", "late_tp", "late_fp", "early_verdicts", "late_verdicts", "job_tp"),
    *("raises", "revisions", "reraises", "retractions", "orphan_retractions"),
    *("ignored_raised", "unlabelled_raised", "phantom_raised"),
    *("tp_node_seconds", "fp_node_seconds"),
)


def by_hand(rows, kind="ever", hold_s=0, grace_s=0):
    """What the scorer should say, one row at a time."""
    close = END + grace_s
    units = defaultdict(list)
    seen = Counter()
    late = set()
    for seq, (node, at, score, action, job) in enumerate(rows):
        if at < 0:
            seen["early_verdicts"] += 1
        elif at > close:
            seen["late_verdicts"] += 1
            if action == "raise":
                late.add((job, node))
        else:
            units[job, node].append((at, seq, score, action))
    blamed = {}
    for unit, said in units.items():
        intervals, scores, start = [], [], None
        for at, _, score, action in sorted(said):
            if action == "raise":
                scores.append(score)
                seen["raises" if start is None else "revisions"] += 1
                if start is None:
                    seen["reraises"] += bool(intervals)
                    start = at
                    intervals.append(None)
            elif start is None:
                seen["orphan_retractions"] += 1
            else:
                seen["retractions"] += 1
                intervals[-1] = (start, at)
                start = None
        if start is not None:
            intervals[-1] = (start, close)
        held = sum(end - begin for begin, end in intervals)
        if kind == "final":
            found = (intervals[-1][0], scores[-1]) if start is not None else None
        else:
            long = [begin for begin, end in intervals if end - begin >= hold_s]
            found = (long[0] + hold_s, max(scores)) if long else None
        if NODES.get(unit[1]) in {"faulty", "normal"}:
            seen["tp_node_seconds" if NODES[unit[1]] == "faulty" else "fp_node_seconds"] += held
        if found:
            blamed[unit] = found
    for job in ("Job1", "Job2"):
        for node, label in NODES.items():
            if label:
                raised = (job, node) in blamed
                seen[{"faulty": ("fn", "tp"), "normal": ("tn", "fp")}[label][raised]] += 1
                if (job, node) in late and not raised:
                    seen["late_tp" if label == "faulty" else "late_fp"] += 1
        seen["job_tp"] += any(unit[0] == job for unit in blamed)
    seen["ignored_raised"] = sum(unit[1] == "e" for unit in blamed)
    seen["unlabelled_raised"] = sum(unit[1] == "z" for unit in blamed)
    seen["phantom_raised"] = sum(unit[1] == "ghost" for unit in blamed)
    hits = sorted(at for (_, node), (at, _) in blamed.items() if node in {"b", "c"})
    return seen, hits


@given(rows=ROWS, policy=POLICIES)
def test_against_a_loop(bench, rows, policy):
    alerts = [(1, "z", "k"), (2, "b", "k")]
    trace = bench.trace(
        bench.job("Job1", NODES, alerts, duration=END),
        bench.job("Job2", NODES, alerts, duration=END),
    )
    said = [bench.say(node, at, score, action, job=job) for node, at, score, action, job in rows]
    found = bench.score(trace, said, **policy).metrics
    expected, hits = by_hand(rows, **policy)
    assert {key: found[key] for key in COUNTED} == {key: expected[key] for key in COUNTED}
    assert found["latency_start_mean"] == (pytest.approx(sum(hits) / len(hits)) if hits else None)
    assert found["latency_start_min"] == (hits[0] if hits else None)
