"""Small data sets in every format, a cache of their own, and the real data sets where present."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedul_flwr.data.sources import source_directory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty cache."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("FEDUL_CACHE", str(directory))
    return directory


def pixels(count: int, *shape: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return random images ``(count, *shape)``."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def png(image: NDArray[Any], form: str = "PNG") -> bytes:
    """Encode one image ``(h, w)`` or ``(h, w, 3 or 4)``."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, form)
    return stream.getvalue()


def write_parquet(
    path: Path,
    images: Sequence[bytes | None],
    columns: dict[str, Any] | None = None,
    *,
    image: str = "image",
    names: Sequence[str] | None = None,
    label: str = "label",
) -> None:
    """Write a parquet file in the schema of `datasets`; ``names`` makes ``label`` a ClassLabel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [{"bytes": content, "path": None} for content in images]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({image: pa.array(cells, type=kind), **(columns or {})})
    features: dict[str, Any] = {image: {"_type": "Image"}}
    if names is not None:
        features[label] = {"names": list(names), "_type": "ClassLabel"}
    info = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), path)


def write_png(path: Path, image: NDArray[Any]) -> None:
    """Write one image file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(image))


def write_files(root: Path, files: dict[str, Any]) -> None:
    """Write texts, bytes, images, arrays of ``.npz`` files, tables, and folders for None."""
    for name, content in files.items():
        path = root / name
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            np.savez(path, **content)
        elif isinstance(content, pa.Table):
            pq.write_table(content, path)
        elif content is not None:
            encoded = png(content) if isinstance(content, np.ndarray) else content
            path.write_bytes(encoded.encode() if isinstance(encoded, str) else encoded)


def write_source(folder: Path, labels: Any, **arrays: Any) -> Path:
    """Write a data set of 400 random images and ``labels`` (four classes); where it was decoded.

    ``arrays`` are further ones of both files, as ``class_names``.
    """
    folder.mkdir()
    np.savez(folder / "train.npz", images=pixels(400, 4, 4), labels=labels, **arrays)
    np.savez(folder / "test.npz", images=pixels(4, 4, 4, seed=1), labels=np.arange(4), **arrays)
    return source_directory(str(folder))
