"""Counters of the running processes, read from their ``/metrics`` pages."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.eE+-]+)$")


def counters(addresses: Iterable[str], name: str, **labels: str) -> float:
    """The sum of one counter over processes and over the label sets that match.

    Args:
        addresses: e.g. ``http://127.0.0.1:9100``; unreachable ones count nothing.
        name: as on the page, e.g. ``streamer_batch_tokens_total``.
        labels: values that must match, e.g. ``lane="bulk"``.
    """
    total = 0.0
    for address in addresses:
        for line in _page(address):
            found = _LINE.match(line)
            if found is None or found[1] != name:
                continue
            if all(f'{key}="{value}"' in (found[2] or "") for key, value in labels.items()):
                total += float(found[3])
    return total


def _page(address: str) -> list[str]:
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=2.0) as answer:
            return str(answer.read().decode()).splitlines()
    except OSError:
        return []
