"""A trace of the size of a whole data set, drawn with numpy: bursts, ties, many jobs at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from replay.traces.model import EVENTS, Trace, TraceJob

SECOND = 10**9
START = "1969-10-15 13:49:13"
START_NS = -6_689_447 * SECOND
KINDS = [f"event_kind_{number}" for number in range(40)]


def whole_set(*, ties: bool = True, jobs: int = 98, alerts: int = 340_685, seed: int = 7) -> Trace:
    """98 jobs of 10 minutes to 11 hours; with ties, eight alerts share a second on average."""
    draw = np.random.default_rng(seed)
    sizes = draw.multinomial(alerts, draw.dirichlet(np.full(jobs, 0.6)))
    spans = np.clip(draw.lognormal(9, 1, jobs), 600, 39_953).astype(int).tolist()
    widths = np.maximum(4, draw.lognormal(3.2, 1, jobs)).astype(int).tolist()
    records, columns = [], []
    for number, (size, span, width) in enumerate(zip(sizes.tolist(), spans, widths, strict=True)):
        if ties:
            seconds = np.sort(draw.integers(0, span, max(1, size // 8)))
            shares = draw.dirichlet(np.full(len(seconds), 0.5))
            at = seconds.repeat(draw.multinomial(size, shares)) * SECOND
        else:
            at = np.sort(draw.integers(0, span * SECOND, size))
        end = str(np.datetime64(START_NS + span * SECOND, "ns").astype("datetime64[s]"))
        records.append(
            TraceJob(
                f"Job{number + 1}",
                START,
                end.replace("T", " "),
                "Hopper",
                {f"node-{node}": "normal" for node in range(width)},
                START_NS,
                START_NS + span * SECOND,
            )
        )
        nodes, kinds = draw.integers(0, width + 2, size), draw.integers(0, len(KINDS), size)
        columns.append((np.full(size, number), at, nodes, kinds))
    job, at, node, kind = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    stamps = pa.array((at + START_NS).astype("datetime64[ns]"))
    unit = "s" if ties else "ns"
    events = [
        pa.array(job.astype(np.int32)),
        pa.DictionaryArray.from_arrays(
            pa.array(node.astype(np.int32)), [f"node-{n}" for n in range(int(node.max()) + 1)]
        ),
        stamps.cast(pa.timestamp(unit)).cast(pa.string()),
        pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int32)), KINDS),
        pa.array(at),
    ]
    return Trace(tuple(records), pa.table(events, schema=EVENTS), "drawn")
