"""Worked examples: every definition once, its numbers written by hand."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from replay.scoring import Cost

NORMAL, FAULTY = "normal", "faulty"
TWO = {"a": NORMAL, "b": FAULTY}


def three_jobs(bench):
    """A hit, misses, a healthy job that is alarmed, and blame outside the population.

    Job1 (600 s, across the epoch): a and c healthy, b and d faulty, e without a label.
    Job2 (1200 s): p and q healthy.
    Job3 (300 s): u faulty, v healthy; not one alert.
    """
    trace = bench.trace(
        bench.job(
            "Job1",
            {"d": FAULTY, "c": NORMAL, "b": FAULTY, "a": NORMAL, "e": ""},
            [(10, "a", "k"), (20, "b", "k"), (20, "z", "k"), (50, "d", "k")],
            start="1969-12-31 23:59:30",
        ),
        bench.job("Job2", {"p": NORMAL, "q": NORMAL}, [(5, "p", "k")], duration=1200),
        bench.job("Job3", {"u": FAULTY, "v": NORMAL}, duration=300, generation="Ampere"),
    )
    said = [
        bench.say("b", 30, 0.9),  # the epoch itself: 1970-01-01 00:00:00
        bench.say("a", 40, 0.5),
        bench.say("z", 45, 0.4),  # alerts, but has no label
        bench.say("ghost", 46, 0.4),  # unknown to the job
        bench.say("e", 47, 0.4),  # ignored
        bench.say("p", 100, 0.7, job="Job2"),
        bench.say("p", 160, 0.7, "retract", job="Job2"),
        bench.say("q", 200, 0.6, job="Job2"),
        bench.say("u", 310, 1.0, job="Job3"),  # ten seconds after the end
    ]
    return trace, said


THREE_JOBS = {
    # nodes: b | a p q | d u | c v
    "tp": 1,
    "fp": 3,
    "fn": 2,
    "tn": 2,
    "precision": 1 / 4,
    "recall": 1 / 3,
    "f1": 2 / 7,
    "f0_5": 5 / 19,
    "f2": 5 / 16,
    "fpr": 3 / 5,
    "mcc": -4 / sqrt(4 * 3 * 5 * 4),
    "balanced_accuracy": 11 / 30,
    "prevalence": 3 / 8,
    "unlabelled_raised": 1,
    "phantom_raised": 1,
    "ignored_raised": 1,
    "precision_strict": 1 / 7,
    "recall_status_faulty": 1 / 3,
    # per job: precision 1/2, 0, -; recall 1/2, -, 0; f1 1/2, 0, 0; jaccard 1/3, 0, 0
    "precision_macro": 1 / 4,
    "precision_macro_n": 2,
    "recall_macro": 1 / 4,
    "recall_macro_n": 2,
    "f1_macro": 1 / 6,
    "f1_macro_n": 3,
    "exact_match_rate": 0.0,
    "jaccard_mean": 1 / 9,
    "job_tp": 1,
    "job_fp": 1,
    "job_fn": 1,
    "job_tn": 0,
    "job_precision": 1 / 2,
    "job_recall": 1 / 2,
    "job_f1": 1 / 2,
    "healthy_job_false_alarm_rate": 1.0,
    # a and c 600 s, p and q 1200 s, v 300 s: 3900 s
    "negative_node_hours": 13 / 12,
    "false_alarms_per_1000_node_hours": 36000 / 13,
    "mtbfa_node_hours": 13 / 36,
    "mtbfa_lower95_node_hours": None,
    "collateral_per_hit": 1.0,
    "raises": 7,
    "retractions": 1,
    "revisions": 0,
    "reraises": 0,
    "orphan_retractions": 0,
    "early_verdicts": 0,
    "late_verdicts": 1,
    "late_tp": 1,
    "late_fp": 0,
    "tp_node_seconds": 570.0,
    "fp_node_seconds": 560.0 + 60.0 + 1000.0,
    "labelled_nodes": 8,
    "labelled_nodes_without_event": 4,
    "unlabelled_nodes_with_event": 1,
    "job_alerts_seen_mean": 3.0,
    # the hit: 30 s after the start, 20 s after the job's first alert, 10 s after its own
    "positives_zero_undefined_start": 0,
    "positives_zero_undefined_job_alert": 1,
    "positives_zero_undefined_node_alert": 1,
    "latency_start_n": 1,
    "latency_start_min": 30.0,
    "latency_start_mean": 30.0,
    "latency_start_max": 30.0,
    "latency_job_alert_p50": 20.0,
    "latency_job_alert_p90": 20.0,
    "latency_node_alert_p95": 10.0,
    "latency_start_p50_all": None,
    "latency_job_alert_p50_all": 20.0,
    "latency_job_alert_p90_all": None,
    "pre_alert_detections": 0,
    "lead_min": 570.0,
    "lead_p50": 570.0,
    "lead_mean": 570.0,
    "lead_max": 570.0,
    "earliness_mean": 0.05,
    "job_latency_start_p50": 30.0,
    "recall_at_60_start": 1 / 3,
    "recall_at_60_job_alert": 1 / 2,
    "rmdd_60_start": 50.0,
    "aurt_60_start": 1 / 6,
    "rmdd_60_job_alert": 40.0,
    "aurt_60_job_alert": 1 / 3,
    # one event among three at 30 s; the others are followed to 600 s and 300 s
    "km_recall_60_start": 1 / 3,
    "km_median_start": None,
    "km_rmst_60_start": 50.0,
    # ranks: Job1 b, a; Job3 nothing
    "hit_at_1": 1 / 2,
    "hit_at_3": 1 / 2,
    "recall_at_k1": 1 / 4,
    "ac_at_1": 1 / 2,
    "ac_at_3": 1 / 4,
    "avg_at_5": 3 / 10,
    "mrr": 1 / 2,
    "chance_hit_at_1": 1 / 2,
    "chance_hit_at_3": 1.0,
    # thresholds: b .9, p .7, q .6, a .5
    "ap_micro": 1 / 3,
    "map": 1 / 4,
    "ap_sklearn": 7 / 12,
    "oracle_f1": 1 / 2,
    "oracle_threshold": 0.9,
    # 10 · 2 + 1 · 3 + 6 · 30 / 3600 + 2 · 1
    "cost": 25.05,
    "cost_null": 30.0,
    "cost_score": 16.5,
}


def test_three_jobs(bench):
    found = bench.score(*three_jobs(bench)).metrics
    got = {key: found[key] for key in THREE_JOBS}
    assert got == {key: pytest.approx(value) for key, value in THREE_JOBS.items()}


def test_every_null_has_a_reason_and_nothing_else_has(bench):
    scored = bench.score(*three_jobs(bench))
    nulls = {key for key, value in scored.metrics.items() if value is None}
    assert nulls == set(scored.undefined)
    assert all(scored.undefined.values())
    assert "latency_start_p50_all" in nulls
    assert scored.undefined["latency_start_p50_all"].startswith("infinite")


def test_rows_of_jobs(bench):
    jobs = bench.score(*three_jobs(bench)).jobs
    assert list(jobs) == ["Job1", "Job2", "Job3"]
    assert [row["tp"] for row in jobs.values()] == [1, 0, 0]
    assert [row["precision"] for row in jobs.values()] == [0.5, 0.0, None]
    assert [row["exact_match_rate"] for row in jobs.values()] == [0.0, 0.0, 0.0]
    assert [row["latency_start_p50"] for row in jobs.values()] == [30.0, None, None]


def test_strata(bench):
    strata = bench.score(*three_jobs(bench), by=("gpu_generation",)).strata["gpu_generation"]
    assert list(strata) == ["Ampere", "Hopper"]
    assert strata["Ampere"].metrics["recall"] == 0.0
    assert strata["Hopper"].metrics["recall"] == 0.5
    assert strata["Ampere"].metrics["job_fn"] == 1


def test_silence(bench):
    trace, _ = three_jobs(bench)
    scored = bench.score(trace, [])
    found = scored.metrics
    assert (found["tp"], found["fp"], found["fn"], found["tn"]) == (0, 0, 3, 5)
    assert found["precision"] is None
    assert found["recall"] == 0.0
    assert found["f1"] == 0.0  # defined: there were positives to find
    assert found["healthy_job_false_alarm_rate"] == 0.0
    assert found["mtbfa_node_hours"] is None
    assert found["mtbfa_lower95_node_hours"] == pytest.approx(13 / 12 / 2.995732)
    assert found["exact_match_rate"] == pytest.approx(1 / 3)  # the silent healthy job matches
    assert found["cost_score"] == 0.0
    assert found["aurt_60_start"] == 0.0
    assert found["oracle_f1"] == 0.0
    assert found["oracle_threshold"] is None


def test_perfect(bench):
    found = bench.one(TWO, [bench.say("b", 0)])
    for key in ("precision", "recall", "f1", "mcc", "balanced_accuracy", "hit_at_1", "mrr", "map"):
        assert found[key] == 1.0, key
    assert found["cost_score"] == 100.0
    assert found["aurt_60_start"] == 1.0
    assert found["latency_start_p50"] == 0.0


def test_nobody_guilty_and_nobody_blamed_has_no_f1(bench):
    scored = bench.score(bench.trace(bench.job("Job1", {"a": NORMAL})), [])
    assert scored.metrics["f1"] is None
    assert scored.metrics["recall"] is None
    assert scored.metrics["ap_micro"] is None
    assert scored.metrics["cost_score"] is None
    assert scored.undefined["f1"] == "there is no positive node and none was raised"


def test_nobody_guilty_and_somebody_blamed_has_f1_zero(bench):
    assert bench.one({"a": NORMAL}, [bench.say("a", 1)])["f1"] == 0.0


# --- the state machine ------------------------------------------------------------------------


def test_revision_reraise_orphan(bench):
    said = [
        bench.say("b", 5, 1.0, "retract"),  # nothing to take back
        bench.say("b", 10, 0.2),
        bench.say("b", 20, 0.8),  # revised: the score changes, the time does not
        bench.say("b", 30, 1.0, "retract"),
        bench.say("b", 50, 0.5),  # again
        bench.say("b", 60, 1.0, "retract"),
    ]
    found = bench.one(TWO, said)
    assert (found["raises"], found["revisions"], found["reraises"]) == (2, 1, 1)
    assert (found["retractions"], found["orphan_retractions"]) == (2, 1)
    assert found["tp_node_seconds"] == 20.0 + 10.0
    assert found["latency_start_p50"] == 10.0
    assert found["oracle_threshold"] == 0.8  # the largest ever raised


def test_ever_counts_what_was_taken_back_and_final_does_not(bench):
    said = [bench.say("b", 10), bench.say("b", 20, action="retract")]
    assert bench.one(TWO, said)["tp"] == 1
    assert bench.one(TWO, said, kind="final")["tp"] == 0


def test_final_takes_the_last_interval_and_the_last_score(bench):
    said = [
        bench.say("b", 10, 0.9),
        bench.say("b", 20, action="retract"),
        bench.say("b", 30, 0.8),
        bench.say("b", 40, 0.3),
    ]
    found = bench.one(TWO, said, kind="final")
    assert found["latency_start_p50"] == 30.0
    assert found["oracle_threshold"] == 0.3


def test_hold_delays_the_detection_and_drops_what_was_short(bench):
    said = [
        bench.say("b", 10),
        bench.say("b", 39, action="retract"),
        bench.say("b", 100),
        bench.say("b", 130, action="retract"),
    ]
    found = bench.one(TWO, said, hold_s=30)
    assert found["tp"] == 1
    assert found["latency_start_p50"] == 130.0
    assert bench.one(TWO, said, hold_s=31)["tp"] == 0


def test_hold_at_the_very_end(bench):
    assert bench.one(TWO, [bench.say("b", 570)], hold_s=30)["lead_min"] == 0.0
    assert bench.one(TWO, [bench.say("b", 571)], hold_s=30)["tp"] == 0


def test_equal_times_go_by_seq(bench):
    raised = [bench.say("b", 10, seq=0), bench.say("b", 10, action="retract", seq=1)]
    assert bench.one(TWO, raised, kind="final")["tp"] == 0
    retracted = [bench.say("b", 10, seq=1), bench.say("b", 10, action="retract", seq=0)]
    assert bench.one(TWO, retracted, kind="final")["tp"] == 1


def test_the_last_of_one_node_and_the_first_of_the_next_stay_apart(bench):
    said = [bench.say("b", 0), bench.say("a", 0), bench.say("a", 600, action="retract")]
    found = bench.one(TWO, said)
    assert (found["raises"], found["retractions"], found["orphan_retractions"]) == (2, 1, 0)


def test_raise_and_retract_in_one_instant_was_still_a_raise(bench):
    said = [bench.say("b", 10), bench.say("b", 10, action="retract")]
    assert bench.one(TWO, said)["tp"] == 1


# --- the window -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "tp", "late", "early"),
    [(-1, 0, 0, 1), (0, 1, 0, 0), (600, 1, 0, 0), (601, 0, 1, 0)],
)
def test_window_is_closed_at_both_ends(bench, at, tp, late, early):
    found = bench.one(TWO, [bench.say("b", at)])
    assert (found["tp"], found["late_verdicts"], found["early_verdicts"]) == (tp, late, early)


def test_a_verdict_at_the_end_has_lead_zero(bench):
    assert bench.one(TWO, [bench.say("b", 600)])["lead_min"] == 0.0


def test_grace_lets_verdicts_in_after_the_end(bench):
    said = [bench.say("b", 610), bench.say("a", 620)]
    found = bench.one(TWO, said, grace_s=10)
    assert (found["tp"], found["fp"], found["late_fp"]) == (1, 0, 1)
    assert found["lead_min"] == -10.0


def test_late_is_not_also_counted_where_it_was_in_time(bench):
    found = bench.one(TWO, [bench.say("b", 10), bench.say("b", 700)])
    assert (found["tp"], found["late_tp"], found["late_verdicts"]) == (1, 0, 1)


def test_early_and_late_rows_do_not_move_the_state(bench):
    said = [bench.say("b", -5), bench.say("b", 700, action="retract"), bench.say("b", 10)]
    found = bench.one(TWO, said, kind="final")
    assert (found["raises"], found["revisions"], found["tp"]) == (1, 0, 1)


# --- jobs -------------------------------------------------------------------------------------


def test_a_job_is_alarmed_by_a_verdict_on_itself_or_on_a_stranger(bench):
    for node in (None, "ghost"):
        found = bench.one(TWO, [bench.say(node, 10)])
        assert (found["job_tp"], found["tp"]) == (1, 0), node
        assert found["job_latency_start_p50"] == 10.0


def test_a_job_without_labelled_nodes_is_left_out(bench):
    found = bench.one({"a": ""}, [bench.say("a", 10)])
    assert [found[f"job_{key}"] for key in ("tp", "fp", "fn", "tn")] == [0, 0, 0, 0]
    assert found["healthy_job_false_alarm_rate"] is None


def test_a_retracted_job_verdict_under_final_is_no_alarm(bench):
    said = [bench.say(None, 10), bench.say(None, 20, action="retract")]
    assert bench.one(TWO, said)["job_tp"] == 1
    assert bench.one(TWO, said, kind="final")["job_tp"] == 0


# --- delay ------------------------------------------------------------------------------------


def test_latency_before_the_nodes_own_alert_is_negative(bench):
    found = bench.one(TWO, [bench.say("b", 15)], [(10, "a", "k"), (40, "b", "k")])
    assert found["latency_node_alert_p50"] == -25.0
    assert found["latency_job_alert_p50"] == 5.0
    assert found["pre_alert_detections"] == 1
    assert found["recall_at_60_node_alert"] == 1.0
    assert found["rmdd_60_node_alert"] == 0.0
    assert found["km_median_node_alert"] == 0.0


def test_alerts_may_stand_in_any_order(bench):
    alerts = [(40, "b", "k"), (10, "a", "k"), (20, "b", "k")]
    found = [bench.one(TWO, [bench.say("b", 25)], order) for order in (alerts, sorted(alerts))]
    assert found[0] == found[1]
    assert found[0]["latency_node_alert_p50"] == 5.0
    assert found[0]["latency_job_alert_p50"] == 15.0


def test_alerts_before_the_start_and_at_zero_are_ordinary(bench):
    found = bench.one(TWO, [bench.say("b", 5)], [(-10, "a", "k"), (0, "b", "k")])
    assert found["latency_job_alert_p50"] == 15.0
    assert found["latency_node_alert_p50"] == 5.0
    assert found["job_alerts_seen_mean"] == 2.0


def test_an_alert_at_the_instant_of_the_verdict_was_seen(bench):
    alerts = [(5, "a", "k"), (10, "b", "k"), (11, "b", "k")]
    assert bench.one(TWO, [bench.say("b", 10)], alerts)["job_alerts_seen_mean"] == 2.0


def test_quantiles_are_inverted_cdf(bench):
    nodes = {f"n{number}": FAULTY for number in range(4)}
    said = [bench.say(f"n{number}", (number + 1) * 10) for number in range(4)]
    found = bench.one(nodes, said)
    assert found["latency_start_p50"] == 20.0  # the smallest with F ≥ 1/2; midway would be 25
    assert found["latency_start_p90"] == 40.0
    assert found["latency_start_mean"] == 25.0


def test_misses_stay_in_the_quantile_over_all(bench):
    nodes = {f"n{number}": FAULTY for number in range(4)}
    two, one = ([bench.say(f"n{number}", 10 + number) for number in range(n)] for n in (2, 1))
    assert bench.one(nodes, two)["latency_start_p50_all"] == 11.0
    assert bench.one(nodes, two)["latency_start_p90_all"] is None
    assert bench.one(nodes, one)["latency_start_p50_all"] is None
    assert bench.one(nodes, one)["latency_start_p50"] == 10.0


def test_p95_of_twenty_is_the_nineteenth(bench):
    nodes = {f"n{number:02}": FAULTY for number in range(20)}
    said = [bench.say(f"n{number:02}", number + 1) for number in range(20)]
    assert bench.one(nodes, said)["latency_start_p95"] == 19.0


def test_recall_at_a_limit_takes_the_limit_in(bench):
    assert bench.one(TWO, [bench.say("b", 60)])["recall_at_60_start"] == 1.0
    assert bench.one(TWO, [bench.say("b", 60.001)])["recall_at_60_start"] == 0.0
    found = bench.one(TWO, [bench.say("b", 0.25)], within=(0.5, 90))
    assert found["recall_at_0.5_start"] == 1.0
    assert found["aurt_0.5_start"] == 0.5
    assert "recall_at_60_start" not in found


def test_kaplan_meier_by_hand(bench):
    # hits at 100 and 300 s; misses followed to 200 s and 400 s: S = 3/4 at 100, 3/8 at 300
    trace = bench.trace(
        bench.job("Job1", {"a": FAULTY, "b": FAULTY}, duration=400),
        bench.job("Job2", {"c": FAULTY}, duration=200),
        bench.job("Job3", {"d": FAULTY}, duration=400),
    )
    said = [bench.say("a", 100), bench.say("d", 300, job="Job3")]
    found = bench.score(trace, said, within=(150, 300, 350)).metrics
    assert found["km_recall_150_start"] == pytest.approx(1 / 4)
    assert found["km_recall_300_start"] == pytest.approx(5 / 8)
    assert found["km_median_start"] == 300.0
    assert found["km_rmst_350_start"] == pytest.approx(100 + 200 * 3 / 4 + 50 * 3 / 8)


def test_earliness_leaves_out_jobs_that_do_not_last(bench):
    trace = bench.trace(
        bench.job("Job1", {"b": FAULTY}, duration=0), bench.job("Job2", {"b": FAULTY}, duration=100)
    )
    said = [bench.say("b", 0), bench.say("b", 25, job="Job2")]
    found = bench.score(trace, said).metrics
    assert found["earliness_mean"] == 0.25
    assert found["tp"] == 2
    assert bench.score(trace, said[:1]).metrics["earliness_mean"] is None


def test_onset_is_a_zero_only_where_it_is_known(bench):
    trace = bench.trace(bench.job("Job1", {"b": FAULTY, "c": FAULTY, "a": NORMAL}))
    said = [bench.say("b", 100), bench.say("c", 100)]
    assert not [key for key in bench.score(trace, said).metrics if "onset" in key]
    found = bench.score(trace, said, onsets={"Job1": {"b": 90.5}}).metrics
    assert found["latency_onset_p50"] == 9.5
    assert found["positives_zero_undefined_onset"] == 1
    assert found["recall_at_60_onset"] == 1.0
    at_once = bench.score(trace, said, onsets={"Job1": {"b": 0, "c": 100}}).metrics
    assert at_once["positives_zero_undefined_onset"] == 0
    assert (at_once["latency_onset_min"], at_once["latency_onset_max"]) == (0.0, 100.0)


def test_first_alarm_of_a_job_may_be_on_an_innocent(bench):
    found = bench.one(TWO, [bench.say("a", 5), bench.say("b", 50)])
    assert found["job_latency_start_p50"] == 5.0
    assert found["latency_start_p50"] == 50.0


# --- ranks ------------------------------------------------------------------------------------


def test_equal_scores_go_by_time_and_equal_times_are_averaged(bench):
    later = [bench.say("a", 20), bench.say("b", 10)]
    assert bench.one(TWO, later)["hit_at_1"] == 1.0
    tied = [bench.say("a", 10), bench.say("b", 10)]
    found = bench.one(TWO, tied)
    assert found["hit_at_1"] == 0.5
    assert found["mrr"] == 0.75
    assert found["hit_at_3"] == 1.0


def test_ranks_by_score_first(bench):
    assert bench.one(TWO, [bench.say("a", 1, 0.1), bench.say("b", 500, 0.2)])["hit_at_1"] == 1.0


def test_ties_among_four(bench):
    nodes = {"a": NORMAL, "b": FAULTY, "c": NORMAL, "d": FAULTY}
    found = bench.one(nodes, [bench.say(node, 10) for node in nodes])
    assert found["hit_at_1"] == pytest.approx(1 / 2)
    assert found["hit_at_3"] == 1.0  # of three out of four, one must be faulty
    assert found["recall_at_k1"] == pytest.approx(1 / 4)
    assert found["mrr"] == pytest.approx(1 / 2 + (1 / 3) / 2 + (1 / 6) / 3)
    assert found["avg_at_5"] == pytest.approx((1 / 2 + 1 / 2 + 3 / 4 + 1 + 1) / 5)


def test_average_precision_takes_equal_scores_together(bench):
    nodes = {"a": NORMAL, "b": FAULTY, "c": FAULTY, "d": NORMAL}
    said = [bench.say("b", 1, 0.9), bench.say("c", 2, 0.5), bench.say("d", 3, 0.5)]
    # recall 1/2 at precision 1, then 1/2 more at precision 2/3
    found = bench.one(nodes, said)
    assert found["ap_micro"] == pytest.approx(1 / 2 + 1 / 3)
    assert found["oracle_f1"] == pytest.approx(4 / 5)
    assert found["oracle_threshold"] == 0.5


def test_chance(bench):
    nodes = {"a": NORMAL, "b": FAULTY, "c": NORMAL, "d": NORMAL, "e": NORMAL}
    found = bench.one(nodes, [])
    assert found["chance_hit_at_1"] == pytest.approx(1 / 5)
    assert found["chance_hit_at_3"] == pytest.approx(3 / 5)
    assert found["chance_hit_at_5"] == 1.0


# --- cost, wall clock, curves -----------------------------------------------------------------


def test_cost_counts_delay_from_its_zero_and_stops_at_tau(bench):
    weights = Cost(c_fn=10, c_fp=0, c_delay_per_hour=36, tau_s=100, c_healthy_job_alarm=0)
    assert bench.one(TWO, [bench.say("b", 50)], cost=weights)["cost"] == pytest.approx(0.5)
    assert bench.one(TWO, [bench.say("b", 500)], cost=weights)["cost"] == pytest.approx(1.0)
    early = Cost(c_delay_per_hour=36, tau_s=100, zero="node_alert")
    found = bench.one(TWO, [bench.say("b", 50)], [(90, "b", "k")], cost=early)
    assert found["cost"] == 0.0
    silent = bench.one(TWO, [bench.say("b", 50)], cost=early)  # b never alerts: no delay to pay
    assert silent["cost"] == 0.0


def test_wall_clock_is_measured_where_it_was_kept(bench):
    said = [
        bench.say("b", 30, walls=(100.0, 99.5, 100.25)),
        bench.say("a", 40, walls=(200.0, 200.0, 201.0)),
        bench.say(None, 50),  # a wake-up: no alert, no wall
    ]
    found = bench.one(TWO, said)
    assert found["processing_ms_min"] == pytest.approx(250)
    assert found["processing_ms_max"] == pytest.approx(1000)
    assert found["processing_ms_mean"] == pytest.approx(625)
    assert found["verdict_vs_schedule_ms_min"] == pytest.approx(750)
    assert found["live_1x_latency_start_s"] == pytest.approx(30.25)
    assert "publish_lag_ms_p50" not in found
    assert "processing_ms_p50" not in bench.one(TWO, [bench.say("b", 30)])


def test_publish_lag_is_over_all_alerts(bench):
    lag = np.array([5.0, 1.0, 3.0, 11.0])
    found = bench.one(TWO, [], publish_lag_ms=lag)
    assert (found["publish_lag_ms_min"], found["publish_lag_ms_p50"]) == (1.0, 3.0)
    assert (found["publish_lag_ms_max"], found["publish_lag_ms_mean"]) == (11.0, 5.0)


def test_threshold_sweep(bench):
    said = [bench.say("b", 10, 0.4), bench.say("b", 40, 0.9), bench.say("a", 20, 0.6)]
    curves = bench.score(bench.trace(bench.job("Job1", TWO)), said, curves=True).curves
    steps = curves["amoc"]
    assert [step["threshold"] for step in steps] == [0.9, 0.6, 0.4]
    assert [step["latency_start_p50_all"] for step in steps] == [40.0, 40.0, 10.0]
    assert [step["fp"] for step in steps] == [0, 1, 1]
    assert [step["recall"] for step in steps] == [1.0, 1.0, 1.0]
    delay = curves["delay"]["start"]
    assert delay == {
        "eligible": 1,
        "delay_s": [10.0],
        "recall": [1.0],
        "km_delay_s": [10.0],
        "km_recall": [1.0],
    }
    assert curves["delay"]["node_alert"]["eligible"] == 0
