"""What travels, as bytes: one JSON object a record, in the data set's published names.

The form is versioned (``v``) and described by ``wire.schema.json`` beside this folder
(:func:`schema`). An alert stream holds ``start``, ``alert``, ``tick`` and ``end`` records of each
job, a verdict stream ``verdict`` and ``judged`` ones; the key of every record is the job's id.
Here the two vocabularies meet: ``ip``, ``event``, ``t`` outside, ``node``, ``kind``, ``at`` inside.

Nothing here knows of a broker, a partition or an offset.
"""

from __future__ import annotations

from replay.transports.wire.fields import VERSION, PoisonError, job_key, schema
from replay.transports.wire.reading import Counters, Decoder
from replay.transports.wire.verdicts import Judged, decode_verdict, encode_verdict, verdict_id
from replay.transports.wire.writing import Encoder

__all__ = [
    "VERSION",
    "Counters",
    "Decoder",
    "Encoder",
    "Judged",
    "PoisonError",
    "decode_verdict",
    "encode_verdict",
    "job_key",
    "schema",
    "verdict_id",
]
