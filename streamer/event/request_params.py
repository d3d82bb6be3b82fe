"""The parameters a request may carry, and what each may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streamer.event.codes import ENCODINGS

_MAX_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """What one parameter may be.

    Attributes:
        kind: ``bool``, ``int`` or ``str``.
        choices: the possible texts; empty = any of 1 to 64 characters.
        low, high: bounds of a number.
    """

    kind: type
    choices: tuple[str, ...] = ()
    low: int = 1
    high: int = 65_536

    def wanted(self, given: object) -> str:
        """What the parameter must be, or "" when ``given`` is that."""
        if self.kind is bool:
            return "" if isinstance(given, bool) else "true or false"
        if self.kind is int:
            # bool is an int to Python and never a number here.
            fits = type(given) is int and self.low <= given <= self.high
            return "" if fits else f"a whole number from {self.low} to {self.high}"
        if self.choices:
            return "" if given in self.choices else f"one of {', '.join(self.choices)}"
        fits = isinstance(given, str) and 0 < len(given) <= _MAX_NAME and _is_utf8(given)
        return "" if fits else f"a text of 1 to {_MAX_NAME} characters"


PARAMS: Final[Mapping[str, Param]] = {
    "truncate": Param(kind=bool),
    "truncation_direction": Param(kind=str, choices=("left", "right")),
    "normalize": Param(kind=bool),
    "dimensions": Param(kind=int),
    "encoding_format": Param(kind=str, choices=ENCODINGS),
    "prompt_name": Param(kind=str),
    "pooling": Param(kind=str, choices=("mean", "cls")),
    "top_n": Param(kind=int),
    "raw_scores": Param(kind=bool),
}


def checked_params(value: Any) -> tuple[dict[str, object], str]:
    """The parameters that are fine, and what is wrong with the first one that is not.

    A parameter of value null counts as not given.
    """
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return {}, "params must be an object"
    fine: dict[str, object] = {}
    wrong = ""
    for name, given in value.items():
        rule = PARAMS.get(name)
        if rule is None:
            wrong = wrong or f"params: only {', '.join(PARAMS)} are known"
        elif given is not None:
            wanted = rule.wanted(given)
            if wanted:
                wrong = wrong or f"params.{name} must be {wanted}"
            else:
                fine[name] = given
    return fine, wrong


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
