"""Files: which of a folder count, those that are always complete, and decoded data.

Decoded data are built once, then memory-mapped by every process.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.errors import StorageError, UserError

_STRAYS = {
    *("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx", "@eadir", "#recycle"),
    *("$recycle.bin", "system volume information", "lost+found"),
}
"""Files and folders, in lower case, that Windows, macOS and network storage leave beside data."""


def is_visible(name: str) -> bool:
    """Whether ``name`` is neither of a hidden file, nor of one that systems leave beside data."""
    return not name.startswith(".") and name.lower() not in _STRAYS


def visible(folder: Path, besides: Collection[str] = ()) -> list[Path]:
    """Entries of a user's folder that count, sorted, without those that are called as one of
    ``besides`` in any case."""
    return [
        entry
        for entry in sorted(folder.iterdir())
        if is_visible(entry.name) and entry.name.lower() not in besides
    ]


def composed(name: str) -> str:
    """``name`` with composed letters (Unicode NFC), so that names of files and classes compare."""
    return unicodedata.normalize("NFC", name)


def find_entry(folder: Path, name: str) -> Path:
    """Path in ``folder`` of what is called ``name`` in any case, as Windows writes ``TRAIN.CSV``;
    nothing may be there.
    """
    matches = sorted(entry for entry in folder.iterdir() if entry.name.lower() == name.lower())
    if len(matches) > 1:
        raise UserError(
            f"{folder} holds {matches[0].name} and {matches[1].name}; only one of them may be "
            "there.",
            "files-contradict",
        )
    return matches[0] if matches else folder / name


PARTS = ".*.[0-9]*.part"
"""Pattern of names of files that are not complete yet."""


def replace_file(path: Path, write: Callable[[Path], object], *, sync: bool = True) -> None:
    """Let ``write`` fill a new file, then give it the name ``path``."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with storing(path):
        try:
            require_regular_file(path)
            part.unlink(missing_ok=True)  # in a stranger's folder it may be a link
            write(part)
            if sync:
                with part.open("rb+") as file:  # Windows syncs what is open for writing alone
                    os.fsync(file.fileno())
            part.replace(path)
            if sync:
                with contextlib.suppress(OSError):  # some file systems, and Windows, cannot
                    _sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Context of writing: what the disk refuses becomes a :class:`StorageError`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error


def require_regular_file(path: Path) -> None:
    """Raise an OSError if ``path`` is a device, a pipe, a folder or a link to nowhere.

    Such a thing must not be replaced by a file.
    """
    # In this order: another process may create the file in between.
    if os.path.lexists(path) and not path.is_file():
        raise OSError(errno.EEXIST, "there is something that is not a file")


def output_file(path: Path, read: Iterable[Path], suffix: str, begin: bytes = b"") -> Path:
    """Where a command writes its result: at ``path``, or at what it links to.

    Not for a name that the user has not given: in a stranger's folder it may be a link.
    """
    target = Path(os.path.realpath(path))  # resolve() raises an error for links in a circle
    # /dev/stdout is a link to one in /proc, and may lead to a file that is open already.
    device = path.parent.resolve() / (path.readlink() if path.is_symlink() else path.name)
    if target.is_dir() or not target.parent.is_dir() or device.is_relative_to("/proc"):
        raise UserError(
            f"Cannot write {path}: it must be a file in an existing folder.", "file-not-writable"
        )
    for source in read if target.is_file() else ():
        folder = source.resolve()
        if folder.is_dir() and folder in target.parents:
            with target.open("rb") as file:
                lost = target.suffix != suffix or file.read(len(begin)) != begin
        else:
            lost = target.samefile(source)
        if lost:
            raise UserError(
                f"Cannot write {path}: the command reads {source}. Name another file.",
                "file-exists",
            )
    return target


def make_folder(path: Path) -> None:
    """Create a folder and those above it, unless they exist."""
    with storing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content``, text as UTF-8; ``path`` is always the complete old or new file."""
    if isinstance(content, str):
        # Names of classes and folders can contain lone surrogates, which UTF-8 cannot encode.
        content = content.encode("utf-8", "backslashreplace")  # names stay different
    replace_file(path, lambda part: part.write_bytes(content))


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, and wait until it is on the disk."""
    with storing(path), path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def save_arrays(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    about: Mapping[str, Any] | None = None,
    *,
    sync: bool = True,
) -> None:
    """Write named arrays as a safetensors file; its header has ``about`` and a checksum as JSON."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # (np.ascontiguousarray would turn scalars into vectors.)
    tensors = {key: np.asarray(array, order="C") for key, array in arrays.items()}
    metadata = {"fedul": json.dumps({_CHECKSUM: _NO_SUM.decode(), **(about or {})})}

    def write(part: Path) -> None:
        try:
            save_file(tensors, part, metadata=metadata)
        except SafetensorError as error:  # a full disk, too
            raise OSError(str(error)) from error
        with part.open("r+b") as file:
            header = _header(file)
            computed, places = zlib.crc32(header), json.loads(header[8:])
            places.pop("__metadata__")
            # Not what was written is read, but what was to be.
            for name in sorted(places, key=lambda name: places[name]["data_offsets"]):
                computed = zlib.crc32(tensors[name].data, computed)
            file.seek(len(_around_checksum(header)[0]))
            file.write(b"%08x" % computed)

    replace_file(path, write, sync=sync)


_CHECKSUM, _NO_SUM = "crc32", b"00000000"
"""Key of the checksum in the JSON of a file's header, and what stands there when it is computed."""
_MARK = rf"\"{_CHECKSUM}\": \"".encode()
_BLOCK = 2**24


def _header(file: BinaryIO) -> bytes:
    """The header of a safetensors file, with its length before it."""
    length = file.read(8)  # it may be no such file
    return length + file.read(
        min(int.from_bytes(length, "little"), os.fstat(file.fileno()).st_size)
    )


def _around_checksum(content: bytes) -> tuple[memoryview, memoryview]:
    """What is before a file's checksum and behind it, of its beginning; all before without one."""
    position = content.find(_MARK)
    start = len(content) if position < 0 else position + len(_MARK)
    return memoryview(content)[:start], memoryview(content)[start + len(_NO_SUM) :]


def require_whole(path: Path) -> None:
    """Refuse a file of :func:`save_arrays` with other bytes than were written.

    Files of other programs have no checksum.

    Raises
    ------
    UserError
        With the file's name.
    """
    with path.open("rb") as file:
        header = _header(file)
        before, after = _around_checksum(header)
        stored = header[len(before) : len(header) - len(after)]
        computed = zlib.crc32(after, zlib.crc32(_NO_SUM, zlib.crc32(before)))
        while stored and (block := file.read(_BLOCK)):
            computed = zlib.crc32(block, computed)
    if stored and stored != b"%08x" % computed:
        raise UserError(
            f"{path} is damaged: its bytes are not those that were written. Restore it from a "
            "copy.",
            "file-damaged",
        )


def load_arrays_of(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays of a safetensors file, and the JSON object in its header; empty if it has none."""
    from safetensors.numpy import load_file

    with _undamaged(path):
        require_whole(regular_file(path))
        return load_file(path), read_header(path)


def read_header(path: Path) -> dict[str, Any]:
    """The JSON object in the header of a safetensors file; empty if it has none."""
    with _undamaged(path), path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        about = json.loads(header.get("__metadata__", {}).get("fedul", "{}"))
    return {k: v for k, v in about.items() if k != _CHECKSUM} if isinstance(about, dict) else {}


@contextlib.contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    wrong = (OSError, ValueError, RecursionError, AttributeError, SafetensorError)
    try:
        yield
    except wrong as error:
        raise UserError(f"{path} is missing or damaged.", "file-damaged") from error


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_blocks(
    file: Path, shape: Sequence[int], dtype: np.dtype[Any], blocks: Iterator[NDArray[Any]]
) -> None:
    """Write ``blocks`` one after the other as one ``.npy`` array of ``shape``.

    Not through a writable memory map, so that a full disk raises an error instead of a SIGBUS.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": tuple(int(n) for n in shape),
    }
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for block in blocks:
            stream.write(np.ascontiguousarray(block, dtype=dtype).data)


def open_array(file: Path) -> NDArray[Any]:
    """Memory-map a cached array read-only.

    A process of a simulation serves many clients, and maps each file once: the first access to a
    page of a new map takes longer than copying it.
    """
    status = file.stat()
    version = status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size
    return map_version(file, *version)


@lru_cache(maxsize=8)
def map_version(file: Path, *_version: int) -> NDArray[Any]:
    """The array of one version of a file: one that is built again is another."""
    array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


# A process of a simulation serves many clients of one split: read each file once.
@lru_cache(maxsize=4)
def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file."""
    with np.load(file) as archive:
        return {name: archive[name] for name in archive.files}


# Decoded data in the cache.

IN_MEMORY = "given"
"""Folder of data that a program gave in memory."""
NAME = "data"
"""Name of the folder of such data, which titles show."""
NETWORKS = "networks"
KINDS = (IN_MEMORY, "owned", "sources", "splits", NETWORKS)
"""Folders of the cache; that of networks holds facts about them, and no data."""
FORMAT_VERSION = 7
"""Part of every key: increase it whenever the format of the cached files changes, or values that
were decoded wrongly."""


def cache_directory() -> Path:
    """Return the folder for decoded data: ``$FEDUL_CACHE``, else ``~/.cache/fedul-flwr``.

    A user without a home gets one that goes when this process ends.
    """
    if named := os.environ.get("FEDUL_CACHE"):
        return Path(named).expanduser()
    try:
        return Path.home() / ".cache" / "fedul-flwr"
    except RuntimeError:
        folder = tempfile.mkdtemp(prefix="fedul-flwr-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    print(
        f"This user has no home folder: decoded data are in {folder} until the end. Set HOME or "
        "FEDUL_CACHE to have them again.",
        file=sys.stderr,
    )
    os.environ["FEDUL_CACHE"] = folder  # for processes that are started, too
    return Path(folder)


def cache_key(identity: object, files: Iterable[Path] = ()) -> str:
    """Return a folder name for data built from ``identity`` (JSON values) and ``files``."""
    digest = hashlib.sha256(json.dumps([FORMAT_VERSION, identity]).encode())
    for file in files:
        try:
            status = file.stat()
        except OSError as error:  # a link to nothing
            raise UserError(
                f"{file} cannot be read: {reason(error)}.", "file-not-readable"
            ) from error
        # Size and time may be those of the file before: archives and rsync -t set times. No program
        # sets the time of the change of an inode, and a file that takes its place is another one.
        line = f"\0{file}\0{status.st_size}\0{status.st_mtime_ns}\0"
        line += f"{status.st_ino}\0{status.st_ctime_ns}"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:24]


def build_once(directory: Path, build: Callable[[Path], None], *, private: bool = False) -> Path:
    """Return ``directory``; build it first if it does not exist.

    ``build`` fills an empty folder, which is renamed to ``directory`` once it is complete. Of
    several processes one builds while the others wait; leftovers of an interrupted build are
    removed by the next one. Only this user can open a ``private`` folder.
    """
    if directory.is_dir():
        return directory
    from filelock import FileLock  # only needed to build

    partial = directory.with_name(directory.name + ".partial")
    with _writing(directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(directory.with_name(directory.name + ".lock")):
            if directory.is_dir():
                return directory
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700 if private else 0o777)
            try:
                build(partial)
                # Atomic: a reader sees the whole folder or none.
                partial.replace(directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return directory


def build_by_content(kind: str, write: Callable[[Path], None]) -> Path:
    """A private folder of this kind with the files that ``write`` puts into an empty one.

    It is named by their content, so that the same data are kept once.
    """
    root = cache_directory() / kind
    with _writing(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="writing-", dir=root) as writing:
            written = Path(writing) / NAME
            written.mkdir()
            write(written)
            files = sorted(path for path in written.rglob("*") if path.is_file())
            content = [[str(file.relative_to(written)), _digest(file)] for file in files]

            def build(folder: Path) -> None:
                written.rename(folder / NAME)

            return build_once(root / cache_key(content), build, private=True) / NAME


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Cannot write decoded data to {folder} ({error.strerror or error}); "
            "set FEDUL_CACHE to a folder that is writable and has room.",
            "file-not-writable",
        ) from error


class CacheUse(NamedTuple):
    """Number of decoded data sets and splits in the cache, and size of all that is cached."""

    entries: int
    num_bytes: int


def measure_cache() -> CacheUse:
    """Number and size of this user's cached data."""
    entries = list(_entries())
    files = (file for entry in entries for file in entry.rglob("*") if file.is_file())
    data = [entry for entry in entries if entry.parent.name != NETWORKS]
    return CacheUse(len(data), sum(file.stat().st_size for file in files))


def clear_cache() -> CacheUse:
    """Delete all cached data; returns what was deleted. A run that is using them goes on."""
    use = measure_cache()
    try:
        for entry in _entries():
            shutil.rmtree(entry)
    except OSError as error:
        raise UserError(
            f"Cannot delete {error.filename}: {error.strerror or error}.", "file-not-writable"
        ) from error
    return use


def _entries() -> Iterator[Path]:
    """Complete folders of the cache, and nothing else that may lie beside them."""
    for kind in KINDS:
        folder = cache_directory() / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if re.fullmatch(r"[0-9a-f]{24}", path.name) and not path.is_symlink():
                yield path
