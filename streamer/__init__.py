"""streamer: Kafka streaming micro-batch inference.

The packages are the stages of the flow, in this order; imports go only toward the front.

    event       what travels: requests, work, results, outputs, jobs; their bytes and topics
    route       which stream, which bucket, which partition; validated, tokenized once, sorted
    batch       what runs together, and when
    infer       the model
    emit        results and the offsets that cover them, in one transaction
    reassemble  ordered job outputs

    telemetry settings | stack client audit | process cli | __main__

Words with one meaning each. *Frontier*: lowest delivered offset not yet finished, per partition.
*Outbox*: finished results waiting for the frontier. *Mark*: the aggregator's committed offset.
*Epoch*: our counter of one assignment of a partition. *Stream*: model and lane. *Bucket*: length
class of a stream. *Plan*: which partition carries which bucket. *Receipt*: how a result came about.

Invariants, by the names that code and tests use:

    cover    a result leaves only in the transaction whose offsets cover it
    prefix   only the contiguous finished prefix of a partition leaves
    epoch    nothing of an old assignment is emitted
    bound    every queue is bounded in items, tokens and bytes
    order    a job's outputs are 0, 1, 2, … without gap or step back
    account  each item ends once
    owner    an answer matches its input digest and its model
    isolate  a bad item changes no other
    live     when faults end, everything drains
    ready    a process that makes no progress says so within 5 seconds
    secret   no text and no secret leaves through logs, labels, spans or errors
"""

__version__ = "0.1.0"
