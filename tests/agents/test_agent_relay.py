"""The relay between an agent's programs and the gateway's socket, with real sockets at both ends."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from repro.agents import relay as relays
from repro.agents.relay import Relay
from repro.errors import PrerequisiteError

Handler = Callable[[socket.socket], None]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp())
    yield folder / "gw.sock"
    shutil.rmtree(folder)


@pytest.fixture
def serve(place: Path) -> Iterator[Callable[[Handler], Relay]]:
    opened: list[tuple[socketserver.BaseServer, Relay]] = []

    def start(handle: Handler) -> Relay:
        class Handling(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                handle(self.request)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that hangs up is what some tests are about."""

        server = Server(str(place), Handling)
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        relay = Relay(0, str(place))
        relay.start()
        opened.append((server, relay))
        return relay

    yield start
    for server, relay in opened:
        relay.close()
        server.shutdown()
        server.server_close()


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=20)


def everything(connection: socket.socket) -> bytes:
    found = b""
    while chunk := connection.recv(1 << 16):
        found += chunk
    return found


def echo_when_whole(connection: socket.socket) -> None:
    """Answers only when the other side has said that it is done: needs a half-closed connection."""
    said = everything(connection)
    connection.sendall(hashlib.sha256(said).hexdigest().encode() + said[:100])


def test_a_hundred_connections_at_once_each_get_their_own_answer(serve: Callable[[Handler], Relay]) -> None:
    """All are open before the first one speaks, each sends more than any buffer holds."""
    relay = serve(echo_when_whole)
    together = threading.Barrier(100)

    def talk(number: int) -> bool:
        said = bytes([number]) * 300_000
        with connect(relay) as connection:
            together.wait(30)
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            return everything(connection) == hashlib.sha256(said).hexdigest().encode() + said[:100]

    with ThreadPoolExecutor(100) as pool:
        assert all(pool.map(talk, range(100)))
    assert relay.connections == 100 and relay.most_at_once > 50


def test_more_connections_than_there_is_room_for_wait_their_turn(
    serve: Callable[[Handler], Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "MOST_CONNECTIONS", 3)
    relay = serve(echo_when_whole)

    def talk(number: int) -> bytes:
        with connect(relay) as connection:
            connection.sendall(b"x")
            connection.shutdown(socket.SHUT_WR)
            return everything(connection)

    with ThreadPoolExecutor(20) as pool:
        assert len(set(pool.map(talk, range(20)))) == 1
    assert relay.most_at_once <= 3


def test_a_gateway_that_closed_its_side_still_receives_data(serve: Callable[[Handler], Relay]) -> None:
    heard: list[bytes] = []
    over = threading.Event()

    def handle(connection: socket.socket) -> None:
        connection.sendall(b"first")
        connection.shutdown(socket.SHUT_WR)
        heard.append(everything(connection))
        over.set()

    with connect(serve(handle)) as connection:
        assert everything(connection) == b"first"
        connection.sendall(b"later")
        connection.shutdown(socket.SHUT_WR)
        assert over.wait(10)
    assert heard == [b"later"]


def test_a_client_that_does_not_read_slows_the_gateway_instead_of_filling_memory(
    serve: Callable[[Handler], Relay],
) -> None:
    sent = [0]

    def handle(connection: socket.socket) -> None:
        connection.settimeout(1.0)
        try:
            while sent[0] < 256 << 20:
                sent[0] += connection.send(b"x" * 65536)
        except (TimeoutError, OSError):
            stalled.set()

    stalled = threading.Event()
    with connect(serve(handle)):
        assert stalled.wait(20)
    assert sent[0] < 32 << 20


def test_a_gateway_that_hangs_up_ends_the_connection(serve: Callable[[Handler], Relay]) -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(1)

    with connect(serve(handle)) as connection:
        connection.sendall(b"x")
        assert everything(connection) == b""


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_missing_gateway_is_an_http_error(place: Path, left: str) -> None:
    if left == "a file":
        with socket.socket(socket.AF_UNIX) as once:
            once.bind(str(place))
    relay = Relay(0, str(place))
    relay.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=10)
        connection.request("POST", "/v1/messages", body=b"x" * 500_000)
        response = connection.getresponse()
        assert response.status == 502 and relays.UNREACHABLE.encode() in response.read()
        connection.close()
    finally:
        relay.close()


def test_a_gateway_that_comes_back_is_reached_again(serve: Callable[[Handler], Relay], place: Path) -> None:
    relay = Relay(0, str(place))
    relay.start()
    try:
        with connect(relay) as connection:
            connection.sendall(b"x")
            assert b"502" in everything(connection)
        serve(echo_when_whole)
        with connect(relay) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert len(everything(connection)) == 64
    finally:
        relay.close()


def test_it_listens_on_loopback_alone(serve: Callable[[Handler], Relay]) -> None:
    relay = serve(echo_when_whole)
    port = f"{relay.port:04X}"
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    listening = [fields[1] for fields in lines if fields[3] == "0A" and fields[1].endswith(":" + port)]
    assert listening == [f"0100007F:{port}"]


def test_a_taken_port_is_reported(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(PrerequisiteError, match="port"):
            Relay(taken.getsockname()[1], str(place)).start()


def test_closing_ends_connections_and_leaves_no_descriptor(serve: Callable[[Handler], Relay]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    relay = serve(echo_when_whole)
    with connect(relay) as connection:
        while relay.connections == 0:
            time.sleep(0.01)
        relay.close()
        relay.close()
        assert everything(connection) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(relay)
    # the server's own socket and its selector stay until the test ends
    assert len(os.listdir("/proc/self/fd")) <= before + 4
