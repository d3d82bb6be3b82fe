"""Real English text that every Python brings along: the paragraphs of its own reference.

The order is that of the reference, so that lengths arrive mixed as in real files.
"""

from __future__ import annotations

from pydoc_data.topics import topics

SHORTEST_CHARS = 20
_QUESTIONS = (
    "What is {}?",
    "How do I use {} in Python?",
    "What are the rules for {}?",
    "Show me an example of {}",
)


def paragraphs() -> list[str]:
    """The distinct paragraphs above 20 characters, about 1,900."""
    seen: dict[str, None] = {}
    for text in topics.values():
        for block in text.split("\n\n"):
            paragraph = " ".join(block.split())
            if len(paragraph) > SHORTEST_CHARS:
                seen.setdefault(paragraph)
    return list(seen)


def questions(count: int) -> list[str]:
    """``count`` short questions about the topics of the reference, all different."""
    names = [_spoken(name) for name in topics]
    made = [pattern.format(name) for pattern in _QUESTIONS for name in names]
    if count > len(made):
        raise ValueError(f"at most {len(made)} questions can be made, not {count}")
    return made[:count]


def _spoken(name: str) -> str:
    """A topic's name as one would say it, e.g. 'attribute access'."""
    return name.replace("-", " ").replace("_", " ").strip()
