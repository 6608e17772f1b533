"""Traces from a data set hub, through ``huggingface_hub`` (the extra ``hf``)."""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from replay.errors import TraceError, TransportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.traces.locate import Form

__all__ = ["CITATION", "LICENCE", "PUBLISHED", "SUMS_FILE", "Fetched", "download", "fetch"]

PUBLISHED = "bytedance-research/llm-training-alert-trace"
"""The published data set."""

LICENCE = "CC BY 4.0 (Attribution 4.0 International)"
"""Its licence."""

CITATION = (
    "Ding et al. Reflex: Event-Driven Automated Fault Localization for Large-Scale LLM Training. "
    "FSE Companion '26. https://doi.org/10.1145/3803437.3805245"
)
"""The paper to cite when using it."""

SUMS_FILE = "SHA256SUMS"
"""Kept beside what was fetched; ``sha256sum -c`` reads it."""

_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)@([^/]+)(?:/(.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ENDINGS = {"parquet": ("*.parquet",), "jsonl": ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst")}
_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched.

    Attributes:
        folder: Where it is.
        commit: The revision, as the hash it stands for.
        sums: File below the folder → SHA-256.
        cached: Whether it was there already.
    """

    folder: Path
    commit: str
    sums: dict[str, str]
    cached: bool


def download(url: str, *, cache: Path | None = None, endpoint: str | None = None) -> Path:
    """Bring what a URL names into the hub's own cache.

    Args:
        url: ``hf://datasets/OWNER/NAME@REVISION/PATH``; PATH may be empty, a file or a folder.
            A table of a pair brings the tables beside it along.
        cache: Where to keep it; None for the default of ``huggingface_hub``.
        endpoint: The hub's address; None for the default likewise.

    Returns:
        The file or folder on disk.

    Raises:
        UsageError: The URL is off, ``huggingface_hub`` is missing, or the hub has no such thing.
        TransportError: The hub does not answer.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise UsageError(f"{url!r} names no data set.", "hf://datasets/OWNER/NAME@REVISION/PATH")
    repo, revision, path = match[1], unquote(match[2]), (match[3] or "").rstrip("/")
    hub = _hub()
    with _guarded(f"{repo}@{revision}"):
        folder = hub.snapshot_download(
            repo,
            repo_type="dataset",
            revision=revision,
            allow_patterns=_patterns(path),
            cache_dir=cache,
            endpoint=endpoint,
            etag_timeout=_TIMEOUT,
        )
    return Path(folder) / path


def fetch(
    into: Path,
    revision: str,
    *,
    repo: str = PUBLISHED,
    form: Form = "parquet",
    endpoint: str | None = None,
) -> Fetched:
    """Download a data set once, check it, and keep its checksums beside it.

    What was fetched by its commit hash is found again without the network.

    Args:
        into: Folder for all data sets; this one goes to ``OWNER--NAME/COMMIT`` in it.
        revision: A commit hash, or a branch or tag, which is resolved to one.
        repo: ``OWNER/NAME``.
        form: ``"parquet"`` or ``"jsonl"``.
        endpoint: The hub's address; None for the default of ``huggingface_hub``.

    Raises:
        UsageError: ``huggingface_hub`` is missing, or the hub has no such thing.
        TraceError: A checksum does not match, or there are no files of that form.
        TransportError: The hub does not answer.
    """
    if form not in _ENDINGS:
        raise UsageError(f"The form {form} cannot be fetched.", f"one of {', '.join(_ENDINGS)}")
    home = into / repo.replace("/", "--")
    if _COMMIT.fullmatch(revision) and (home / revision / form / SUMS_FILE).exists():
        return _verified(home / revision / form, revision)
    hub = _hub()
    with _guarded(f"{repo}@{revision}"):
        info = hub.HfApi(endpoint).dataset_info(
            repo, revision=revision, files_metadata=True, timeout=_TIMEOUT
        )
    folder = home / info.sha / form
    if (folder / SUMS_FILE).exists():
        return _verified(folder, info.sha)
    files = _wanted(info, form, repo)
    with _guarded(f"{repo}@{info.sha}"):
        sums = _downloaded(hub, repo, info.sha, files, folder, endpoint)
    return Fetched(folder, info.sha, sums, cached=False)


def _downloaded(
    hub: Any, repo: str, commit: str, files: Sequence[Any], folder: Path, endpoint: str | None
) -> dict[str, str]:
    """Download beside the folder, check, and only then move there."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for file in files:
        hub.hf_hub_download(
            repo,
            file.rfilename,
            repo_type="dataset",
            revision=commit,
            local_dir=partial,
            endpoint=endpoint,
            etag_timeout=_TIMEOUT,
        )
    sums = {file.rfilename: _sha256(partial / file.rfilename) for file in files}
    for file in files:
        _compare(partial / file.rfilename, sums[file.rfilename], file.lfs and file.lfs.sha256)
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    (partial / SUMS_FILE).write_text("".join(lines), "utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)
    return sums


def _patterns(path: str) -> list[str] | None:
    if not path:
        return None
    beside = [str(PurePosixPath(path).parent / "*.parquet")] if path.endswith(".parquet") else []
    return [path, f"{path}/*", *beside]


def _wanted(info: Any, form: Form, repo: str) -> Sequence[Any]:
    """The files of one form, and what says what they are."""
    files = sorted(info.siblings, key=lambda file: file.rfilename)
    data = [f for f in files if any(Path(f.rfilename).match(end) for end in _ENDINGS[form])]
    if not data:
        value = ", ".join(file.rfilename for file in files)
        raise TraceError(f"the data set has no {form} files", f"{repo}@{info.sha}", value=value)
    for file in data:
        if ".." in PurePosixPath(file.rfilename).parts or not file.rfilename.isprintable():
            what = "a file with a name that could lead anywhere"
            raise TraceError(what, f"{repo}@{info.sha}", value=file.rfilename)
    return [f for f in files if f in data or f.rfilename in {"README.md", "LICENSE"}]


def _verified(folder: Path, commit: str) -> Fetched:
    """What is there already, its checksums compared."""
    lines = (folder / SUMS_FILE).read_text("utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    for name, digest in sums.items():
        _compare(folder / name, _sha256(folder / name), digest)
    return Fetched(folder, commit, sums, cached=True)


def _compare(path: Path, digest: str, expected: str | None) -> None:
    if expected and digest != expected:
        what, remedy = f"the checksum is not {expected}", "remove the folder and fetch again"
        raise TraceError(what, str(path), value=digest, remedy=remedy)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", str(path)) from None


def _hub() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        what = "Reading from a data set hub needs huggingface_hub."
        raise UsageError(what, "pip install 'alert-replay[hf]'") from None
    importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    return huggingface_hub


@contextmanager
def _guarded(what: str) -> Iterator[None]:
    """Turn what the hub's library raises into our errors."""
    from huggingface_hub import errors  # noqa: PLC0415 - an extra, and slow to import

    try:
        yield
    except TraceError:
        raise
    except errors.GatedRepoError:
        raise UsageError(f"{what} asks for a login.", "hf auth login") from None
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ) as error:
        raise UsageError(f"The hub has no data set {what}: {_sentence(error)}") from None
    except Exception as error:  # noqa: BLE001 - which ones it raises changes with its version
        answer = f"The hub did not give {what}: {_sentence(error)}"
        raise TransportError(answer, "again later, or a commit that was fetched before") from None


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
