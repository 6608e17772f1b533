"""Data sets from a hub, against a server on this machine that speaks the part of it we need."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from replay.cli.verbs import run_verb
from replay.errors import TraceError, TransportError, UsageError
from replay.traces import hub, write
from replay.traces import open as open_trace

REPO = "owner/alerts"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """One data set at one commit, by branch name and by hash."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Answers)
        self.files = files
        self.asked = []
        self.lies = {}
        self.status = 200

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}"


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        api = f"/api/datasets/{REPO}/"
        raw = f"/datasets/{REPO}/resolve/{COMMIT}/"
        if self.server.status != 200:
            self.answer(b"busy", status=self.server.status)
        elif path in {f"{api}revision/main", f"{api}revision/{COMMIT}"}:
            self.answer(json.dumps(self.about()).encode())
        elif path == f"{api}tree/{COMMIT}":
            self.answer(json.dumps(self.tree()).encode())
        elif path.startswith(raw) and path.removeprefix(raw) in self.server.files:
            body = self.server.files[path.removeprefix(raw)]
            self.answer(body, **{"ETag": f'"{digest(body)}"', "X-Repo-Commit": COMMIT})
        else:
            code = "RevisionNotFound" if path.startswith(api) else "RepoNotFound"
            self.answer(b"", status=404, **{"X-Error-Code": code})

    do_HEAD = do_GET  # noqa: N815 - the name http.server calls

    def about(self):
        siblings = [
            {
                "rfilename": name,
                "size": len(body),
                "lfs": {"sha256": self.promised(name), "size": len(body), "pointerSize": 1},
            }
            for name, body in self.server.files.items()
        ]
        return {"id": REPO, "sha": COMMIT, "siblings": siblings}

    def tree(self):
        return [
            {
                "type": "file",
                "path": name,
                "size": len(body),
                "oid": digest(body)[:40],
                "lfs": {"oid": self.promised(name), "size": len(body), "pointerSize": 1},
            }
            for name, body in self.server.files.items()
        ]

    def promised(self, name):
        return self.server.lies.get(name, digest(self.server.files[name]))

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *words):
        pass


def digest(body):
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def trace(good):
    return open_trace("unsorted")


@pytest.fixture
def server(trace, tmp_path):
    tables = write(trace, tmp_path / "source" / "data", "parquet")
    (tables / "README.md").rename(tables.parent / "README.md")
    write(trace, tables / "trace.jsonl")
    files = {
        path.relative_to(tables.parent).as_posix(): path.read_bytes()
        for path in sorted(tables.parent.rglob("*.*"))
    }
    with Hub(files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(server, into, revision="main", **options):
    return hub.fetch(into, revision, repo=REPO, endpoint=server.endpoint, **options)


def test_a_branch_is_pinned_to_its_commit_and_kept_with_checksums(server, trace, tmp_path):
    fetched = fetch(server, tmp_path / "cache")
    assert fetched.commit == COMMIT
    assert not fetched.cached
    assert fetched.folder == tmp_path / "cache" / "owner--alerts" / COMMIT / "parquet"
    assert open_trace(fetched.folder) == trace
    assert fetched.sums == {
        name: digest(server.files[name])
        for name in ("README.md", "data/events.parquet", "data/jobs.parquet")
    }
    sums = (fetched.folder / hub.SUMS_FILE).read_text().splitlines()
    assert sums == [f"{value}  {name}" for name, value in fetched.sums.items()]


def test_what_was_fetched_is_found_again_without_the_network(server, trace, tmp_path):
    first = fetch(server, tmp_path, form="jsonl")
    assert open_trace(first.folder) == trace
    server.asked.clear()
    again = fetch(server, tmp_path, COMMIT, form="jsonl")
    assert again.cached
    assert (again.folder, again.sums) == (first.folder, first.sums)
    assert server.asked == []
    by_name = fetch(server, tmp_path, form="jsonl")
    assert by_name.cached
    assert server.asked == [f"/api/datasets/{REPO}/revision/main"]


def test_a_changed_file_is_noticed(server, tmp_path):
    fetched = fetch(server, tmp_path)
    (fetched.folder / "data/jobs.parquet").write_bytes(b"changed")
    with pytest.raises(TraceError, match="the checksum is not"):
        fetch(server, tmp_path, COMMIT)
    (fetched.folder / "data/jobs.parquet").unlink()
    with pytest.raises(TraceError, match=r"jobs\.parquet: cannot be read: No such file"):
        fetch(server, tmp_path, COMMIT)


def test_a_file_that_is_not_what_the_hub_promised(server, tmp_path):
    server.lies["data/events.parquet"] = "0" * 64
    with pytest.raises(TraceError) as caught:
        fetch(server, tmp_path)
    assert f"data/events.parquet: the checksum is not {'0' * 64}" in str(caught.value)
    assert not (tmp_path / "owner--alerts" / COMMIT / "parquet").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"revision": "nope"}, "The hub has no data set owner/alerts@nope: "),
        ({"form": "folders"}, "The form folders cannot be fetched.  Try: one of parquet, jsonl"),
    ],
)
def test_what_the_hub_does_not_have(server, tmp_path, options, message):
    with pytest.raises(UsageError) as caught:
        fetch(server, tmp_path, **options)
    assert str(caught.value).startswith(message)


def test_a_name_that_leads_out_of_the_folder(server, tmp_path):
    server.files["../events.parquet"] = b""
    with pytest.raises(TraceError) as caught:
        fetch(server, tmp_path)
    assert str(caught.value) == (
        f"{REPO}@{COMMIT}: a file with a name that could lead anywhere: '../events.parquet'."
    )
    assert list(tmp_path.rglob("*.partial")) == []


def test_a_folder_that_was_left_half_done_is_fetched_anew(server, trace, tmp_path):
    fetched = fetch(server, tmp_path)
    (fetched.folder / hub.SUMS_FILE).unlink()
    assert not fetch(server, tmp_path).cached
    assert open_trace(fetched.folder) == trace


def test_a_data_set_of_another_form(server, tmp_path):
    del server.files["data/trace.jsonl"]
    with pytest.raises(TraceError) as caught:
        fetch(server, tmp_path, form="jsonl")
    assert str(caught.value) == (
        f"{REPO}@{COMMIT}: the data set has no jsonl files: "
        "'README.md, data/events.parquet, data/jobs.parquet'."
    )


def test_a_hub_that_is_broken(server, tmp_path):
    server.status = 403
    with pytest.raises(TransportError) as caught:
        fetch(server, tmp_path)
    assert str(caught.value).startswith("The hub did not give owner/alerts@main: ")
    assert str(caught.value).endswith("Try: again later, or a commit that was fetched before")


def test_a_hub_that_is_gone(server, tmp_path):
    endpoint = server.endpoint
    server.shutdown()
    server.server_close()
    with pytest.raises(TransportError, match="The hub did not give owner/alerts@main: "):
        hub.fetch(tmp_path, "main", repo=REPO, endpoint=endpoint)


def test_the_verb(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ALERT_REPLAY_HUB", server.endpoint)
    monkeypatch.setenv("ALERT_REPLAY_CACHE", str(tmp_path / "kept"))
    assert run_verb(["fetch", "--revision", "main", "--dataset", REPO]) == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "kept" / "owner--alerts" / COMMIT / "parquet"
    assert out == f"{folder}\n"
    assert err.splitlines() == [
        f"{REPO} at {COMMIT}: fetched; checksums match.",
        *(
            f"sha256 {digest(server.files[name])}  {name}"
            for name in ("README.md", "data/events.parquet", "data/jobs.parquet")
        ),
        f"Next: alert-replay validate {folder}",
    ]
    assert run_verb(["fetch", "--revision", COMMIT, "--dataset", REPO, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cached"], document["commit"], document["dataset"]) == (True, COMMIT, REPO)
    assert run_verb(["fetch"]) == 2
    assert "--revision" in capsys.readouterr().err


def test_the_published_set_is_shown_with_licence_and_citation(server, tmp_path, capsys):
    folder = tmp_path / hub.PUBLISHED.replace("/", "--") / COMMIT
    fetched = fetch(server, tmp_path)
    folder.parent.mkdir()
    fetched.folder.parent.rename(folder)
    assert run_verb(["fetch", "--revision", COMMIT, "--into", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert "Licence: CC BY 4.0" in err
    assert "Citation: Ding et al. Reflex: " in err
    assert "https://doi.org/10.1145/3803437.3805245" in err


@pytest.mark.parametrize("path", ["", "/", "/data", "/data/", "/data/jobs.parquet"])
def test_an_address_is_like_a_path(server, trace, tmp_path, path):
    url = f"hf://datasets/{REPO}@main{path}"
    found = hub.download(url, cache=tmp_path / "hub", endpoint=server.endpoint)
    assert open_trace(found, form="parquet") == trace


def test_an_address_is_read_where_a_path_is(server, tmp_path):
    """In a process of its own: the hub's library reads its settings once, from the environment."""
    url = f"hf://datasets/{REPO}@{COMMIT}/data/trace.jsonl"
    environment = {**os.environ, "HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-m", "replay", "validate", url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "1 jobs, 4 events, 1 warnings, 0 errors"
    assert done.returncode == 0
    assert f"Read {url} as jsonl." in done.stderr


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for attempt in (
        lambda: open_trace("hf://datasets/a/b@main"),
        lambda: hub.fetch(Path(tmp_path), "main"),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert str(caught.value) == (
            "Reading from a data set hub needs huggingface_hub.  "
            "Try: pip install 'alert-replay[hf]'"
        )
