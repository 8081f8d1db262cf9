"""What an owner's images are like before the run resizes them: for the owner, and as counts.

An owner whose images are squeezed by resizing, or half as bright, harms all. Sizes and forms come
from headers, brightness and contrast from the points as models take them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.agreement import Words, column_counts
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.decode import (
    BLOCK,
    IMAGE_SUFFIXES,
    EncodedImages,
    Images,
    file_images,
    files_once,
    inspect_image,
    readable,
)
from fedul_flwr.data.dicom import Facts, dicom_facts, is_dicom
from fedul_flwr.data.local_data import own_data
from fedul_flwr.data.table_files import npz_images, open_parquet, table_images
from fedul_flwr.data.types import Inputs, InputShape

_SHOWN = 8
"""Different values of a header that are listed."""
_MODALITIES = ("CR", "DX", "MG", "CT", "MR", "US")
_FORMS = ("8 bits", "16 bits", *_MODALITIES, "DICOM of another kind")
_HEADERS = (
    *(Column("height"), Column("width"), Column("width by height"), Column("pixel spacing")),
    *(Column("channels", ("gray", "color")), Column("form", _FORMS)),
)
IMAGES = Columns((*_HEADERS, Column("brightness"), Column("contrast")))
"""What is counted of images: sizes in pixels as their files have them, spacing in mm; mean and
standard deviation of the pixels, from 0 to 255, as the model gets them."""
WORDS = Words(
    column="images, {}:",
    rows="images",
    numbers="images",
    finer={"width by height": 4, "pixel spacing": 2, "brightness": 2, "contrast": 2},
    asks={
        **{"height": "smaller copies?", "width": "smaller copies?", "form": "another device?"},
        **{"width by height": "squeezed?", "pixel spacing": "another scale?"},
        **{"brightness": "another range of values?", "contrast": "another range of values?"},
        "channels": "another kind of image?",
    },
)


def folder_images(folder: Path) -> Iterator[Images]:
    """The images in an owner's folder, one file after the other."""
    for file in files_once(folder):
        suffix = file.suffix.lower()
        if suffix in IMAGE_SUFFIXES:
            yield file_images(file.name, [file])
        elif suffix == ".parquet":
            yield table_images(open_parquet(file))
        elif suffix == ".npz":
            yield npz_images(file)  # type: ignore[misc]


def _header_rows(folder: Path) -> Iterator[list[float]]:
    """Of each image what :data:`IMAGES` has of its header, one-hot for categories."""
    for images in folder_images(folder):
        if not isinstance(images, EncodedImages):
            height, width, channels = images.pixels.shape[1:]
            yield from [_row(height, width, "8 bits", color=channels == 3)] * len(images)
            continue
        for name, content in chain.from_iterable(images.batches()):
            seen = inspect_image(name, content)
            form, spacing = "16 bits" if seen.deep else "8 bits", float("nan")
            with readable(name):
                if is_dicom(content):
                    facts = dicom_facts(content)
                    form = facts.modality if facts.modality in _MODALITIES else _FORMS[-1]
                    if facts.spacing != "none":
                        spacing = float(facts.spacing.split("x")[0])
            yield _row(*seen.size, form, color=seen.color, spacing=spacing)


def _row(
    height: int, width: int, form: str, *, color: bool, spacing: float = float("nan")
) -> list[float]:
    of_form = [float(form == one) for one in _FORMS]
    return [height, width, width / height, spacing, float(not color), float(color), *of_form]


def image_counts(folder: Path | None, inputs: Inputs, points: Ints) -> Ints:
    """``(d, BINS)``, counts of images of one client by the ``d`` features of :data:`IMAGES`.

    Parameters
    ----------
    folder : of the owner; without one sizes are those of ``inputs``.
    inputs : uint8 ``(n, height, width, channels)``, of which rows ``points`` are the client's.
    """
    if folder is None:
        height, width, channels = inputs.shape[1:]
        rows = [_row(height, width, "8 bits", color=channels == 3)] * len(points)
    else:
        with own_data():
            rows = [*_header_rows(folder)]
    pixels: list[Floats] = [np.zeros((0, 2))]
    for start in range(0, len(points), BLOCK):
        block = np.asarray(inputs[points[start : start + BLOCK]], np.float64)
        axes = (1, 2, 3)
        pixels.append(np.column_stack([block.mean(axis=axes), block.std(axis=axes)]))
    return np.concatenate(
        [
            column_counts(np.array(rows).reshape(len(rows), -1), IMAGES, WORDS.finer),
            column_counts(np.concatenate(pixels), Columns(IMAGES.columns[-2:]), WORDS.finer),
        ]
    )


def survey_images(folder: Path, shape: InputShape) -> Iterator[str]:
    """Lines about the DICOM files in an owner's folder, for its eyes only."""
    facts: list[Facts] = []
    with own_data():
        for images in folder_images(folder):
            batches = images.batches() if isinstance(images, EncodedImages) else ()
            for name, content in chain.from_iterable(batches):
                with readable(name):
                    if is_dicom(content):
                        facts.append(dicom_facts(content))
    if not facts:
        return
    yield f"DICOM images: {len(facts)}"
    for what in Facts._fields:
        counts = Counter(getattr(one, what) for one in facts).most_common()
        listed = ", ".join(f"{value} ({count})" for value, count in counts[:_SHOWN])
        others = f", {len(counts) - _SHOWN} others" if len(counts) > _SHOWN else ""
        yield f"{what}: {listed}{others}"
    height, width = shape[:2]
    sides = [tuple(map(int, one.size.split("x"))) for one in facts]
    if odd := sum(rows * width != columns * height for rows, columns in sides):
        yield (
            f"warning: {odd} of {len(facts)} images have other proportions than {height}x{width}: "
            "they are padded with black"
        )
    if len({one.spacing for one in facts}) > 1:
        yield "warning: pixel spacings differ: the same organ is not equally large in all images"
