"""A wire between a client and a server that is cut at a call."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Wire(threading.Thread):
    """Passes bytes between a client and a server, and cuts the wire at the call that is named.

    Attributes:
        cut_at: a name of a call; empty: none.
        delivered: whether that call reaches the server, and its reply alone is lost.
    """

    def __init__(self, uri):
        super().__init__(daemon=True)
        self._target = urlsplit(uri)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.uri = f"{self._target.scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        self.cut_at, self.delivered, self.cuts = b"", True, 0

    def run(self):
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.create_connection((self._target.hostname, self._target.port))
        silent = threading.Event()
        back = threading.Thread(target=self._back, args=(server, client, silent), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cut_at and self.cut_at in data:
                    self.cut_at = b""
                    self.cuts += 1
                    silent.set()
                    if self.delivered:
                        while True:  # the rest of the call
                            server.sendall(data)
                            client.settimeout(0.3)
                            data = client.recv(1 << 16)
                    break
                server.sendall(data)
        if silent.is_set() and self.delivered:
            back.join(10)  # until the server has answered
        client.close()
        server.close()

    def _back(self, server, client, silent):
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if silent.is_set():
                    return
                client.sendall(data)

    def close(self):
        self._listening.close()
