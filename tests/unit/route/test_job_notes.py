from __future__ import annotations

from streamer.route.entry import JobNote
from streamer.route.job_notes import JobNotes, NoteLimits


def a_note(job: str = "j", total: int = -1, deadline_at_ms: int = 0) -> JobNote:
    return JobNote(
        tenant="default", job_id=job, total=total, deadline_at_ms=deadline_at_ms, model="m",
        form="json", accepted_at_ms=7,
    )  # fmt: skip


def test_only_so_many_jobs_are_remembered_and_a_forgotten_one_is_told_again() -> None:
    notes = JobNotes(lane="bulk", limits=NoteLimits(jobs=3))
    for at in range(10):
        draft = notes.draft(0)
        draft.add(a_note(f"j{at}"))
        notes.keep(draft)

    assert len(notes) == 3
    assert not notes.draft(0).needs(a_note("j9"))
    assert notes.draft(0).needs(a_note("j0"))


def test_what_is_not_kept_was_never_told() -> None:
    notes = JobNotes(lane="bulk", limits=NoteLimits())
    notes.draft(0).add(a_note())

    assert notes.draft(0).needs(a_note())


def test_one_transaction_says_everything_about_a_job_in_one_record() -> None:
    draft = JobNotes(lane="bulk", limits=NoteLimits()).draft(0)
    for note in (a_note(), a_note(total=5), a_note(deadline_at_ms=90), a_note(deadline_at_ms=80)):
        draft.add(note)

    (entry,) = draft.records()

    assert (entry.kind, entry.total, entry.deadline_at_ms, entry.created_at_ms) == (
        "seen",
        5,
        80,
        7,
    )


def test_conflicting_totals_are_all_told_but_not_without_end() -> None:
    notes = JobNotes(lane="bulk", limits=NoteLimits())
    told = []
    for total in (5, 6, 5, 7, 6, 8, 9, 10, 11):
        draft = notes.draft(0)
        draft.add(a_note(total=total))
        notes.keep(draft)
        told += [entry.total for entry in draft.records()]

    assert told == [5, 6, 7, 8]


def test_tenants_do_not_share_jobs() -> None:
    notes = JobNotes(lane="bulk", limits=NoteLimits())
    draft = notes.draft(0)
    draft.add(a_note())
    notes.keep(draft)
    other = JobNote(
        tenant="other", job_id="j", total=-1, deadline_at_ms=0, model="m", form="json",
        accepted_at_ms=0,
    )  # fmt: skip

    assert notes.draft(0).needs(other)
