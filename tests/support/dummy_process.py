"""Stands in for a real process in tests of the stack: health page, clean end, faults on demand.

A file ``crash`` in the working directory makes it fail at start; ``stubborn`` makes it ignore
SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    if Path("crash").exists():
        sys.exit(7)
    if Path("stubborn").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: end.set())
    server = HTTPServer(("127.0.0.1", int(os.environ["STREAMER_HTTP__PORT"])), _Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"slot {os.environ['STREAMER_SLOT']} of {os.environ['STREAMER_KAFKA__PREFIX']}")
    end.wait()
    print("ended cleanly")


end = threading.Event()

if __name__ == "__main__":
    main()
