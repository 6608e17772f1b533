"""A replay beside a real Prometheus, and perhaps a real Alertmanager, on free ports."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(command, log):
    """A process that ends with the block, whatever happens in it."""
    assert shutil.which(command[0]), f"{command[0]} is not installed"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def said(log, pattern, process, patience=30.0):
    """What matches in a log, once it is there."""
    give_up = time.monotonic() + patience
    while True:
        text = log.read_text()
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return found
        assert process.poll() is None, text
        assert time.monotonic() < give_up, text
        time.sleep(0.02)


def replayed(folder, rules, arguments, *, through_alertmanager=False):
    """Replay beside a Prometheus that is started as the replay says; the run's document."""
    folder.mkdir()
    stack, log, out = folder / "stack", folder / "replay.log", folder / "out"
    command = [sys.executable, "-m", "replay", "run", *map(str, arguments), "--json"]
    command += ["--live-rules", str(rules), "--stack", str(stack), "--out", str(out)]
    if through_alertmanager:
        command += ["--alertmanager", f"127.0.0.1:{free_port()}"]
    with contextlib.ExitStack() as stack_of:
        replay = stack_of.enter_context(started(command, log))
        lines = said(log, r"^  (prometheus .*)$", replay)
        if through_alertmanager:
            lines += said(log, r"^  (prometheus-alertmanager .*)$", replay)
        for number, line in enumerate(lines):
            words = line.replace("127.0.0.1:9090", f"127.0.0.1:{free_port()}").split()
            stack_of.enter_context(started(words, folder / f"server{number}.log"))
        text, _ = replay.communicate(timeout=120)
        assert replay.returncode == 0, log.read_text()
    verdicts = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    return json.loads(text), verdicts


def old_windows():
    """Whether the Prometheus at hand is older than 3.0."""
    found = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    return int(re.search(r"version (\d+)\.", found.stdout + found.stderr)[1]) < 3
