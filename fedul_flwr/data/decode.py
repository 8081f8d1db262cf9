"""Convert encoded images, or arrays of pixels, to uint8 arrays of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.types import Bytes, Inputs, InputShape
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

Shape = InputShape
"""``(height, width, channels)``, 1 channel for gray and 3 for RGB."""

Item = tuple[str, "bytes | Path"]
"""One encoded image: its name in messages, and its content or file."""

BLOCK = 256
"""Images decoded at a time; bounds the memory that decoding a large data set takes."""

_SMALL = 64 * 64
_ORIENTATION = 0x0112
_GREY_MODES = {"1", "L", "LA", "La"}
_GREY_16_BIT_MODES = {"I;16", "I;16L", "I;16B", "I;16N"}


@dataclass
class Survey:
    """Sizes of a collection's images, each with an example, and whether any image has color."""

    sizes: dict[tuple[int, int], str] = field(default_factory=dict)
    colour: bool = False

    def shape(self, where: str) -> Shape:
        """Return the one shape of all images.

        Raises
        ------
        UserError
            If the images have different sizes.
        """
        if len(self.sizes) > 1:
            (one, first), (other, second) = list(self.sizes.items())[:2]
            raise UserError(
                f"{where} holds images of different sizes ({one[0]}x{one[1]}: {first}; "
                f"{other[0]}x{other[1]}: {second}): set image-size to resize all to so many "
                "pixels, as in image-size = 32."
            )
        (height, width) = next(iter(self.sizes))
        return height, width, self.channels

    @property
    def channels(self) -> int:
        """3 if any image has color, else 1."""
        return 3 if self.colour else 1


class Images(Protocol):
    """Images of one split or set, before their conversion to one shape."""

    @property
    def where(self) -> str:
        """Name of this collection in messages."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""

    def __len__(self) -> int: ...

    def survey(self) -> Survey:
        """Collect every image's size and mode."""

    def blocks(self, shape: Shape) -> Iterator[Bytes]:
        """Yield all images in order, uint8 ``(at most BLOCK, *shape)`` at a time."""


@dataclass(frozen=True)
class EncodedImages:
    """Images as PNG, JPEG, ... in files or in memory.

    Attributes
    ----------
    where : name of the collection in messages.
    count : number of images.
    batches : function that starts a pass over the images in order, in lists of at most ``BLOCK``.
    """

    where: str
    count: int
    batches: Callable[[], Iterator[list[Item]]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return self.count

    def survey(self) -> Survey:
        """Collect every image's size and mode; reads headers only."""
        survey = Survey()
        for batch in self.batches():
            for name, content in batch:
                size, colour = inspect_image(name, content)
                survey.sizes.setdefault(size, name)
                survey.colour |= colour
        return survey

    def blocks(self, shape: Shape) -> Iterator[Bytes]:
        """Yield all images in order, uint8 ``(at most BLOCK, *shape)`` at a time."""
        workers = min(8, usable_cpus())
        with ThreadPoolExecutor(workers) as pool:
            for batch in filter(None, self.batches()):
                block = np.empty((len(batch), *shape), dtype=np.uint8)
                (height, width), _ = inspect_image(*batch[0])
                # Pillow releases the interpreter lock only within a decoder: threads double the
                # speed for large images and halve it for small ones.
                parts = workers if height * width > _SMALL else 1
                step = -(-len(batch) // parts)
                tasks = [
                    pool.submit(_decode_into, block[start : start + step], batch[start:][:step])
                    for start in range(0, len(batch), step)
                ]
                for task in tasks:
                    task.result()
                yield block


@dataclass(frozen=True)
class PixelImages:
    """Images that are pixels already, uint8 ``(n, height, width, 1 or 3)``."""

    where: str
    pixels: Bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def survey(self) -> Survey:
        """Return the one size and number of channels of the array."""
        _, height, width, channels = self.pixels.shape
        return Survey({(height, width): "all"}, colour=channels == 3)

    def blocks(self, shape: Shape) -> Iterator[Bytes]:
        """Yield all images in order, uint8 ``(at most BLOCK, *shape)`` at a time."""
        for start in range(0, len(self), BLOCK):
            block = self.pixels[start : start + BLOCK]
            if block.shape[1:] != shape:
                from PIL import Image

                squeezed = block[..., 0] if block.shape[3] == 1 else block
                block = np.stack([to_shape(Image.fromarray(one), shape) for one in squeezed])
            yield block


class _Blocks(Protocol):
    def blocks(self, shape: Shape) -> Iterator[Inputs]: ...


def join_blocks(points: _Blocks, shape: Shape) -> Inputs:
    """All points in order, ``(n, *shape)``."""
    joined: Inputs = np.concatenate(list(points.blocks(shape)))
    return joined


def list_batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Cut ``items`` into lists of at most ``BLOCK``."""
    for start in range(0, len(items), BLOCK):
        yield list(items[start : start + BLOCK])


def inspect_image(name: str, content: bytes | Path) -> tuple[tuple[int, int], bool]:
    """Return an image's ``(height, width)`` and whether it has color, from its header.

    Raises
    ------
    UserError
        If the image cannot be read.
    """
    try:
        with _open(content) as image:
            width, height = image.size
            if _orientation(image) >= 5:  # rotated by 90 degrees
                width, height = height, width
            return (height, width), _has_colour(image)
    except Exception as error:
        raise _unreadable(name) from error


def decode_image(name: str, content: bytes | Path, shape: Shape) -> Bytes:
    """Decode one image and convert it to ``shape``.

    Parameters
    ----------
    name : name of the image in messages.
    content : the encoded image or its file.
    shape : ``(height, width, channels)``; resizing is bilinear, transparency is dropped.

    Returns
    -------
    uint8 array of ``shape``.

    Raises
    ------
    UserError
        If the image cannot be read or has 32-bit pixels.
    """
    try:
        with _open(content) as image:
            image.load()
            if _orientation(image) > 1:
                from PIL import ImageOps

                return to_shape(ImageOps.exif_transpose(image), shape)
            return to_shape(image, shape)
    except Exception as error:  # for a broken file Pillow's decoders may raise anything
        raise _unreadable(name) from error


def to_shape(image: Image.Image, shape: Shape) -> Bytes:
    """Return the pixels of ``image`` as uint8 of ``shape``, resized (bilinear) if necessary."""
    from PIL import Image

    height, width, channels = shape
    if image.mode in _GREY_16_BIT_MODES:
        # Pillow would clip 16-bit values at 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in {"I", "F"}:
        raise ValueError("32-bit pixels have no known range")
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    mode = "L" if channels == 1 else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(shape)


def _decode_into(block: Bytes, batch: list[Item]) -> None:
    shape = (int(block.shape[1]), int(block.shape[2]), int(block.shape[3]))
    for row, (name, content) in enumerate(batch):
        block[row] = decode_image(name, content, shape)


def _open(content: bytes | Path) -> Image.Image:
    from PIL import Image

    # A pipe would never end.
    return Image.open(BytesIO(content) if isinstance(content, bytes) else regular_file(content))


def _orientation(image: Image.Image) -> int:
    """Return the camera's orientation tag, 1 (upright) to 8; `datasets` also applies it."""
    if "exif" not in image.info:
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _has_colour(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return image.mode not in _GREY_MODES | _GREY_16_BIT_MODES | {"I", "F"}


def _unreadable(name: str) -> UserError:
    return UserError(
        f"{name} cannot be read as an image; 8- or 16-bit PNG, JPEG, BMP, GIF, TIFF and WebP are."
    )
