"""Files that no run can use: data, runs, models and modules, made in a folder."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robustness.bad_tables import write_tables

MODULES = {
    "raises": "raise ValueError('at import')",
    "exits": "import sys\nsys.exit(0)",
    "recurses": "def f():\n    f()\nf()",
    "syntax": "def f(:\n",
    "nul": "x = 1\0",
    "missing_import": "import no_such_package_at_all",
    "builders": """
import sys
import torch
from torch import nn

number = 7
def raising(input_shape, num_classes): raise KeyError("no such layer")
def exiting(input_shape, num_classes): sys.exit(0)
def nothing(input_shape, num_classes): return None
def one_argument(input_shape): return nn.Linear(1, 1)
class Raising(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], num_classes)
    def forward(self, x): raise ValueError("in forward")
class Exiting(Raising):
    def forward(self, x): sys.exit(0)
class Wide(Raising):
    def forward(self, x): return torch.cat([self.layer(x.flatten(1))] * 2, 1)
class Flat(Raising):
    def forward(self, x): return self.layer(x.flatten(1)).sum()
class Text(Raising):
    def forward(self, x): return "logits"
class NoWeights(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.num_classes = num_classes
    def forward(self, x): return x.new_zeros(len(x), self.num_classes)
""",
}


def warm_up() -> None:
    """Load what commands load, so that forks are quick."""
    import matplotlib.pyplot
    import pandas
    import pyarrow.parquet
    import torchvision.models

    import fedul_flwr.cli.main
    import fedul_flwr.client_app
    import fedul_flwr.server_app
    from fedul_flwr.deploy import check, init
    from fedul_flwr.engine import flower_simulation, in_process
    from fedul_flwr.experiments import reproduction, search
    from fedul_flwr.results import plots, report
    from fedul_flwr.results import predict as prediction_file
    from robustness import bad_inputs

    assert all((matplotlib, pandas, pyarrow, torchvision, fedul_flwr, bad_inputs, check, init))
    assert all((in_process, flower_simulation, reproduction, search))
    assert all((plots, prediction_file, report))


def prepare(root: Path) -> None:
    """Make all files below ``root``."""
    modules(root)
    settings_files(root)
    data_sets(root / "data")
    write_tables(root / "tables")
    images(root / "images")
    owners(root / "owners")
    runs(root)


def modules(root: Path) -> None:
    for name, text in MODULES.items():
        (root / f"own_{name}.py").write_text(text)


def png(size: int = 8, mode: str = "L") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new(mode, (size, size)).save(buffer, "PNG")
    return buffer.getvalue()


def huge_npy(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    """An array whose header promises ``shape`` and that holds nothing."""
    buffer = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def npz_of(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


GOOD = np.zeros((40, 8, 8), np.uint8)
LABELS = np.arange(40) % 4


def settings_files(root: Path) -> None:
    (root / "folder.toml").mkdir()
    os.mkfifo(root / "fifo.toml")
    (root / "binary.toml").write_bytes(bytes(range(256)))
    (root / "deep.toml").write_text("a = " + "[" * 20_000)
    (root / "deep-table.toml").write_text("[" + ".".join(["a"] * 5_000) + "]\nb = 1\n")
    (root / "list.toml").write_text("seed = [1, 2]\n")
    (root / "latin.toml").write_bytes('model = "é"\n'.encode("latin-1"))
    (root / "long-number.toml").write_text("seed = " + "9" * 5000 + "\n")
    (root / "loop.toml").symlink_to(root / "loop.toml")
    (root / "empty.toml").touch()
    (root / "runs.toml").write_text("[a]\nmethod = 'fedul'\n")
    (root / "runs-list.toml").write_text("a = 1\n")
    (root / "deep.json").write_text("[" * 100_000)
    (root / "text.json").write_text('"text"')
    (root / "nul.json").write_bytes(b"\0" * 100)
    (root / "key.pub").write_text("ssh-ed25519 nothing\n")
    (root / "a-file").write_text("x")
    (root / "loop").symlink_to(root / "loop")


def data_sets(root: Path) -> None:
    def both(name: str, write: Callable[[Path], object]) -> None:
        (root / name).mkdir(parents=True)
        for split in ("train", "test"):
            write(root / name / f"{split}.npz")

    def arrays(**found: Any) -> Callable[[Path], object]:
        return lambda path: np.savez(path, **found)

    both("huge", lambda p: npz_of(p, images=huge_npy((64_000_000_000, 32, 32)), labels=npy(LABELS)))
    both("huge-labels", lambda p: npz_of(p, images=npy(GOOD), labels=huge_npy((2**45,), "<i8")))
    both("negative", lambda p: npz_of(p, images=huge_npy((-5, 8, 8)), labels=npy(LABELS)))
    both("objects", lambda p: npz_of(p, images=npy(np.array([{}], dtype=object)), labels=npy([0])))
    both("truncated", lambda p: p.write_bytes(b"PK\x03\x04 half"))
    both("plain", lambda p: p.write_bytes(npy(GOOD)))
    both("empty-file", lambda p: p.touch())
    both("folders", lambda p: p.mkdir())
    both("fifos", os.mkfifo)
    both("no-labels", arrays(images=GOOD))
    both("no-images", arrays(labels=LABELS))
    both("few-labels", arrays(images=GOOD, labels=LABELS[:3]))
    both("text-labels", arrays(images=GOOD, labels=np.array(["a"] * 40)))
    both("huge-label", arrays(images=GOOD, labels=np.full(40, 2**62)))
    both("negative-label", arrays(images=GOOD, labels=np.full(40, -2)))
    both("nan-labels", arrays(images=GOOD, labels=np.full(40, np.nan)))
    both("no-label-known", arrays(images=GOOD, labels=np.full(40, -1)))
    both("one-class", arrays(images=GOOD, labels=np.zeros(40, int)))
    both("nan", arrays(images=np.full((40, 8, 8), np.nan), labels=LABELS))
    both("range", arrays(images=np.full((40, 8, 8), 7.0), labels=LABELS))
    both("flat", arrays(images=np.zeros((40, 64), np.uint8), labels=LABELS))
    both("five", arrays(images=np.zeros((4, 8, 8, 3, 2), np.uint8), labels=LABELS[:4]))
    both("two-channels", arrays(images=np.zeros((40, 8, 8, 2), np.uint8), labels=LABELS))
    both("no-pixels", arrays(images=np.zeros((40, 0, 8), np.uint8), labels=LABELS))
    both("none", arrays(images=GOOD[:0], labels=LABELS[:0]))
    both("one", arrays(images=GOOD[:1], labels=LABELS[:1]))
    both("good", arrays(images=GOOD, labels=LABELS))
    both("int32", arrays(images=GOOD.astype(np.int32), labels=LABELS))
    both("complex", arrays(images=GOOD.astype(np.complex64), labels=LABELS))
    _parquets(root)
    for name in ("empty", "only-train"):
        (root / name).mkdir()
    shutil.copy(root / "good" / "train.npz", root / "only-train")
    both("two-kinds", arrays(images=GOOD, labels=LABELS))
    shutil.copytree(root / "good", root / "both")
    (root / "both" / "train.parquet").touch()
    _class_folders(root)


def _parquets(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(name: str, **columns: Any) -> None:
        (root / name).mkdir()
        for split in ("train", "test"):
            pq.write_table(pa.table(columns), root / name / f"{split}.parquet")

    picture = png()
    table("pq-good", image=[picture] * 20, label=[0, 1] * 10)
    table("pq-columns", pixels=[1, 2], label=[0, 1])
    table("pq-null", image=[picture, None], label=[0, 1])
    table("pq-text", image=["a.png", "b.png"], label=[0, 1])
    table("pq-not-images", image=[b"junk", b"more"], label=[0, 1])
    table("pq-labels", image=[picture] * 2, label=["a", "b"])
    table("pq-nested", image=[picture] * 2, label=[[0], [1]])
    table("pq-empty", image=pa.array([], pa.binary()), label=pa.array([], pa.int64()))
    for name, change in (("pq-half", lambda b: b[: len(b) // 2]), ("pq-junk", lambda _: b"PAR1")):
        (root / name).mkdir()
        for split in ("train", "test"):
            content = (root / "pq-good" / f"{split}.parquet").read_bytes()
            (root / name / f"{split}.parquet").write_bytes(change(content))
    (root / "pq-middle").mkdir()
    for split in ("train", "test"):
        content = bytearray((root / "pq-good" / f"{split}.parquet").read_bytes())
        content[20:200] = bytes(180)
        (root / "pq-middle" / f"{split}.parquet").write_bytes(content)


def _class_folders(root: Path) -> None:
    def classes(name: str) -> Path:
        for split in ("train", "test"):
            for label in ("a", "b"):
                (root / name / split / label).mkdir(parents=True)
                for number in range(10):
                    (root / name / split / label / f"{number}.png").write_bytes(png())
        return root / name / "train" / "a"

    os.mkfifo(classes("fifo-image") / "x.png")
    (classes("folder-image") / "x.png").mkdir()
    loop = classes("loop-image") / "x.png"
    loop.symlink_to(loop)
    (classes("loop-folder") / "again").symlink_to(root / "loop-folder" / "train")
    (classes("junk-image") / "x.png").write_bytes(b"junk")
    (classes("empty-image") / "x.png").touch()
    (classes("text-file") / "readme.md").write_text("x")
    (classes("half-image") / "x.png").write_bytes(png()[:40])
    (classes("bomb") / "x.png").write_bytes(_huge_png())
    (classes("sizes") / "x.png").write_bytes(png(9))
    beside = classes("no-utf8").parent
    bad = beside / os.fsdecode(b"cl\xff\xfe")
    bad.mkdir()
    (bad / "x.png").write_bytes(png())
    (classes("other-classes").parent.parent / "test" / "c").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(classes("socket-image"))  # names of sockets must be short
    listening.bind("x.png")
    os.chdir(here)


def _huge_png() -> bytes:
    """A picture that says it has 60,000 x 60,000 pixels."""
    content = bytearray(png())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    import zlib

    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    return bytes(content)


def images(root: Path) -> None:
    root.mkdir()
    (root / "good.png").write_bytes(png())
    (root / "large.png").write_bytes(png(9))
    (root / "color.png").write_bytes(png(8, "RGB"))
    (root / "junk.png").write_bytes(b"junk")
    (root / "bomb.png").write_bytes(_huge_png())
    os.mkfifo(root / "fifo.png")
    (root / "unknown.xyz").write_text("x")
    (root / "empty").mkdir()
    (root / "folder.png").mkdir()
    np.savez(root / "good.npz", images=GOOD)
    np.savez(root / "large.npz", images=np.zeros((3, 9, 9), np.uint8))
    np.savez(root / "rgb.npz", images=np.zeros((3, 8, 8, 3), np.uint8))
    np.savez(root / "none.npz", images=GOOD[:0])
    npz_of(root / "huge.npz", images=huge_npy((2**40, 32, 32)))
    (root / "junk.npz").write_bytes(b"junk")
    (root / "junk.parquet").write_bytes(b"PAR1")
    os.mkfifo(root / "fifo.npz")
    os.mkfifo(root / "fifo.parquet")


def owners(root: Path) -> None:
    from tests.support.owner_files import PRIORS, write_points, write_sets

    write_sets(root / "sets")
    write_points(root / "points")
    for name, text in (
        ("nan", PRIORS.replace("0.7", "nan")),
        ("sum", PRIORS.replace("0.7", "0.9")),
        ("negative", PRIORS.replace("0.7", "-0.7")),
        ("missing-set", PRIORS + "march,0.5,0.5\n"),
        ("twice", PRIORS + "january,0.5,0.5\n"),
        ("empty", ""),
        ("header", "set,a,b\n"),
        ("ragged", "set,sound,ill\njanuary,1\nfebruary,0.2,0.8\n"),
        ("huge-cell", f"set,sound,ill\njanuary,{'9' * 200_000},0\n"),
    ):
        (write_sets(root / f"priors-{name}") / "priors.csv").write_text(text)
    (write_sets(root / "priors-latin") / "priors.csv").write_bytes(b"set,sound,ill\n\xff\xfe,1,0\n")
    fifo = write_sets(root / "priors-fifo") / "priors.csv"
    fifo.unlink()
    os.mkfifo(fifo)
    for name, text in (("class", "name,label\n0,cyst\n"), ("name", "name,label\nz,sound\n")):
        write_points(root / f"labels-{name}", text)
    write_points(root / "labels-nul", "name,label\n0\0,sound\n")
    clients = root / "clients"
    for number in range(2):
        write_sets(clients / str(number))
    (root / "clients-file").mkdir()
    (root / "clients-file" / "x").touch()


def runs(root: Path) -> None:
    """A finished run, and copies of it with one thing wrong each."""
    from safetensors.numpy import load_file, save_file

    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine.in_process import run_in_process

    place = root / "runs-of-others"
    good = place / "good"
    settings = {"model": "mlp", "num-rounds": 2, "local-epochs": 1, "output": str(good)}
    run_in_process(resolve(settings, root), 2)
    config = json.loads((good / "config.json").read_text())
    arrays = load_file(good / "model.safetensors")

    def spoiled(name: str, file: str, content: str | bytes | None) -> None:
        shutil.copytree(good, place / name)
        target = place / name / file
        target.unlink()
        if isinstance(content, str):
            target.write_text(content)
        elif content is not None:
            target.write_bytes(content)

    def configured(name: str, **changes: Any) -> None:
        changed = {key: {**config[key], **changes.get(key, {})} for key in ("settings", "data")}
        spoiled(name, "config.json", json.dumps(changed))

    weights = (good / "last.safetensors").read_bytes()
    metrics = (good / "metrics.jsonl").read_text()
    for file in ("config.json", "summary.json", "federation.json", "environment.json"):
        stem = Path(file).stem
        for kind, text in (
            ("deep", "[" * 100_000),
            ("list", "[]"),
            ("half", '{"a": '),
            ("nul", "\0"),
        ):
            spoiled(f"{stem}-{kind}", file, text)
    spoiled("config-none", "config.json", None)
    spoiled("config-settings", "config.json", '{"settings": [1], "data": {}}')
    spoiled("config-empty", "config.json", '{"settings": {}, "data": {}}')
    spoiled("config-latin", "config.json", b'{"settings": {"a": "\xff"}}')
    spoiled("config-surrogate", "config.json", json.dumps({**config, "x": "\ud800"}))
    configured("config-type", settings={"batch-size": "two"})
    configured("config-method", settings={"method": "no-such-method"})
    configured("config-model", settings={"model": 7})
    configured("config-model-list", settings={"model": ["mlp"]})
    configured("config-exits", settings={"model": "own_exits:f"})
    configured("config-shape", data={"input_shape": [8, 8]})
    configured("config-huge-shape", data={"input_shape": [10**6, 10**6, 3]})
    configured("config-classes", data={"num_classes": 10**12, "class_names": None})
    configured("config-true", data={"num_classes": True})
    configured("config-clients", data={"num_clients": "two"})
    for file in ("last", "model"):
        name = f"{file}.safetensors"
        spoiled(f"{file}-none", name, None)
        spoiled(f"{file}-empty", name, b"")
        spoiled(f"{file}-half", name, weights[: len(weights) // 2])
        spoiled(f"{file}-huge-header", name, struct.pack("<Q", 2**60) + weights[8:])
        spoiled(f"{file}-junk", name, b"\0" * 1000)
        spoiled(f"{file}-fifo", name, None)
        os.mkfifo(place / f"{file}-fifo" / name)
        spoiled(f"{file}-folder", name, None)
        (place / f"{file}-folder" / name).mkdir()
        shutil.copytree(good, place / f"{file}-nan")
        broken = {key: np.full_like(array, np.nan) for key, array in arrays.items()}
        about = json.dumps({**json.loads(metrics.splitlines()[1]), "round": 2})
        save_file(broken, place / f"{file}-nan" / name, metadata={"fedul": about})
        shutil.copytree(good, place / f"{file}-other")
        save_file({"w": np.ones(3)}, place / f"{file}-other" / name, metadata={"fedul": about})
    spoiled("metrics-junk", "metrics.jsonl", "junk\n" + metrics)
    spoiled("metrics-nul", "metrics.jsonl", metrics + "\0\0\n")
    spoiled("metrics-deep", "metrics.jsonl", metrics + "[" * 100_000 + "\n")
    spoiled("metrics-round", "metrics.jsonl", metrics + '{"round": "x"}\n')
    spoiled("metrics-huge", "metrics.jsonl", metrics + '{"round": ' + "9" * 5000 + "}\n")
    spoiled("metrics-fifo", "metrics.jsonl", None)
    os.mkfifo(place / "metrics-fifo" / "metrics.jsonl")
