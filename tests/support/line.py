"""A stack with the fake engine, a client of it, and the ledger of what was put in."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from loadgen.kafka_ledger import check_jobs, count_aborted, read_topic
from loadgen.ledger import Ledger, Put, Report, text_hash
from streamer.audit.kafka_audit import LaneAudit
from streamer.audit.verdict import Verdict
from streamer.client import Client, Job
from streamer.client.kafka_jobs import JobName
from streamer.event.topics import TopicNames
from streamer.infer.fake_engine import fake_vector
from streamer.route.fake_tokenizer import fake_ids
from streamer.settings import Settings, load_settings
from streamer.stack.local import LocalStack

FAKE_DIMENSION = 2


def fake_put(text: str, custom_id: str, status: str = "succeeded") -> Put:
    """What the fake engine answers to a text of at most 512 words."""
    ids = np.array(fake_ids(text), np.uint16)
    vector = fake_vector(ids, FAKE_DIMENSION) if status == "succeeded" else None
    return Put(custom_id=custom_id, text_hash=text_hash(text), vector=vector, status=status)


def words(number: int) -> str:
    """A text of its own for every number, 1 to 40 words long."""
    return " ".join([f"item{number}", *(f"w{k}" for k in range(number * 7919 % 40))])


@dataclass(slots=True)
class Line:
    """Sends jobs through a stack and judges what came out."""

    stack: LocalStack
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def settings(self) -> Settings:
        """As a command beside the stack would see them."""
        return load_settings(
            kafka={
                "bootstrap": self.stack.bootstrap,
                "prefix": self.stack.prefix,
                "group_prefix": self.stack.group_prefix,
            }
        )

    @property
    def names(self) -> TopicNames:
        """The topics of the stack."""
        return TopicNames(self.stack.prefix)

    @property
    def broker(self) -> dict[str, str]:
        """Client properties."""
        return {"bootstrap.servers": self.stack.bootstrap}

    def submit(self, client: Client, count: int, *, job_id: str, lane: str = "bulk") -> Job:
        """Send ``count`` texts as a job and note them in the ledger."""
        texts = [words(number) for number in range(count)]
        for number, text in enumerate(texts):
            self.ledger.put(job_id, number, fake_put(text, f"c{number}"))
        items = [{"custom_id": f"c{n}", "input": text} for n, text in enumerate(texts)]
        return client.submit(items, model="fake", lane=lane, job_id=job_id)

    def verdict(self, lane: str = "bulk") -> dict[str, Report]:
        """Every job of the ledger, judged by the output topic of the lane."""
        return check_jobs(self.ledger, self.broker, self.names.outputs(lane))

    def assert_exact(self, lane: str = "bulk") -> None:
        """Each item of each job has exactly one right row, in its place, and one completion.

        Two judges that share no code: the ledger of what was put in, and the audit.
        """
        for job_id, report in self.verdict(lane).items():
            assert report.ok, (job_id, report.problems)
            verdict = self.audit(job_id, lane)
            assert verdict.ok, (job_id, verdict.problems)
            assert (verdict.items, verdict.lost) == (report.items, 0)

    def audit(self, job_id: str, lane: str = "bulk") -> Verdict:
        """What ``streamer audit JOB`` says."""
        kafka = self.settings.kafka
        audit = LaneAudit(self.broker, self.names, lane, group_prefix=kafka.group_prefix)
        try:
            return audit.job(JobName(lane=lane, job_id=job_id))
        finally:
            audit.close()

    def aborted(self, *topics: str) -> int:
        """Records that only read_uncommitted shows in these topics."""
        return sum(count_aborted(self.broker, topic) for topic in topics)

    def dead_letters(self, lane: str = "bulk") -> int:
        """Records in the lane's dead letter topic."""
        found: list[object] = []
        read_topic(self.broker, self.names.dead_letters(lane), each=found.append)
        return len(found)
