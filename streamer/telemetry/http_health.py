"""``/live``, ``/ready`` and ``/metrics`` of a process, on loopback unless told otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamer.errors import ConfigurationError


class HealthServer:
    """Answers from a daemon thread.

    Args:
        host: address to listen on.
        port: 0 = a free one.
        ready: names what is not ready; an empty list means ready.
        metrics: the text of ``/metrics``.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        ready: Callable[[], list[str]],
        metrics: Callable[[], bytes],
    ) -> None:
        self._host = host
        self._port = port
        self._ready = ready
        self._metrics = metrics
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        """Listen; returns the base URL.

        Raises:
            ConfigurationError: the port is taken or the address is not ours.
        """
        answers = {"/live": self._live, "/ready": self._is_ready, "/metrics": self._scrape}

        class Handler(_Handler):
            pages = answers

        try:
            self._server = ThreadingHTTPServer((self._host, self._port), Handler)
        except OSError as error:
            raise ConfigurationError(
                f"http.port: cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        return f"http://{self._host}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _live(self) -> tuple[int, bytes]:
        return 200, b"live\n"

    def _is_ready(self) -> tuple[int, bytes]:
        missing = self._ready()
        if missing:
            return 503, ("not ready: " + ", ".join(missing) + "\n").encode()
        return 200, b"ready\n"

    def _scrape(self) -> tuple[int, bytes]:
        return 200, self._metrics()


class _Handler(BaseHTTPRequestHandler):
    pages: dict[str, Callable[[], tuple[int, bytes]]]

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        status, body = page() if page is not None else (404, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: they come every second."""
