"""Asks a process's health pages."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit


def is_ready(health: str, timeout_s: float = 1.0) -> bool:
    """Whether ``/ready`` below a health address answers 200."""
    address = urlsplit(health)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port or 80, timeout=timeout_s
    )
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
