"""Convert encoded images, or arrays of pixels, to uint8 arrays of one shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.dicom import dicom_size, is_dicom, read_dicom
from fedul_flwr.data.safe_files import is_visible
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import MissingPackageError, UserError

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm", ".dcm"),
)

Shape = InputShape
"""``(height, width, channels)``, 1 channel for gray and 3 for RGB."""

Item = tuple[str, "bytes | Path"]
"""One encoded image: its name in messages, and its content or file."""

BLOCK = 256
"""Images decoded at a time; bounds the memory that decoding a large data set takes."""

Window = tuple[float, float] | None
"""Center and width of the values that DICOM images show; None for those of each file."""

UNKNOWN_BITS = 0
"""How many bits the values of images have is not known: 16-bit files are refused."""

_SMALL = 64 * 64
_ORIENTATION = 0x0112
_PHOTOMETRIC, _WHITE_IS_ZERO, _PAGE_KIND, _NO_PAGE = 262, 0, 254, 0b101
"""Tags of TIFF; a page that is a smaller copy or a mask of another one is no image of its own."""
_GRAY_MODES = {"1", "L", "LA", "La"}
_DEEP_MODES = {"I;16", "I;16L", "I;16B", "I;16N", "I"}
"""Gray modes of Pillow whose values may be above 255."""
_DEPTHS = (8, 10, 12, 14, 16)
"""Bits of the values that cameras, scanners and X-ray detectors write into 16-bit files."""
_NEARLY_BLACK, _MANY = 4, 9
"""Bits by which an image is darker than it was meant, and images for each one that is not."""


@dataclass
class Survey:
    """What a collection's images have in common."""

    sizes: dict[tuple[int, int], str] = field(default_factory=dict)
    color: bool = False
    depths: dict[int, tuple[int, str]] = field(default_factory=dict)

    def bits(self, where: str) -> int:
        """Bits of the values: the smallest usual depth that holds all values of 16-bit files, 1
        for arrays of 0 and 1, else :data:`UNKNOWN_BITS`.
        """
        if not self.depths:
            return UNKNOWN_BITS
        most = max(self.depths)
        count, example = self.depths[most]
        rest = {bits: number for bits, (number, _) in self.depths.items() if bits < most}
        if rest and max(rest) <= most - _NEARLY_BLACK and sum(rest.values()) >= _MANY * count:
            raise UserError(
                f"{where} holds {sum(rest.values())} 16-bit images whose values have {max(rest)} "
                f"bits or fewer, and {count} with {most} bits ({example}): set image-bits to the "
                "bits that all have, or take the others away.",
                "image-bits",
            )
        return most

    def size(self, where: str) -> tuple[int, int]:
        """Return the one ``(height, width)`` of all images."""
        if len(self.sizes) > 1:
            (one, first), (other, second) = list(self.sizes.items())[:2]
            raise UserError(
                f"{where} holds images of different sizes ({one[0]}x{one[1]}: {first}; "
                f"{other[0]}x{other[1]}: {second}): set image-size to resize all to so many "
                "pixels, as in image-size = 32.",
                "image-size",
            )
        return next(iter(self.sizes))

    @property
    def channels(self) -> int:
        """3 if any image has color, else 1."""
        return 3 if self.color else 1


@dataclass(frozen=True)
class EncodedImages:
    """Images of one split or set as PNG, JPEG, ... in files or in memory; ``where`` names them."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)
    where: str
    count: int
    batches: Callable[[], Iterator[list[Item]]]
    bits: int = UNKNOWN_BITS
    window: Window = None

    def __len__(self) -> int:
        return self.count

    def survey(self) -> Survey:
        """Collect every image's size and mode; reads headers only, but for 16-bit files."""
        survey = Survey()
        for batch in self.batches():
            for name, content in batch:
                seen = inspect_image(name, content)
                survey.sizes.setdefault(seen.size, name)
                survey.color |= seen.color
                if seen.deep:
                    largest = _largest_value(name, content)
                    bits = next(bits for bits in _DEPTHS if largest < 2**bits)
                    count, example = survey.depths.get(bits, (0, name))
                    survey.depths[bits] = (count + 1, example)
        return survey

    def read_with(self, bits: int, window: Window) -> Self:
        """The same images, whose values have so many bits, in a window of DICOM."""
        return replace(self, bits=bits, window=window)

    def blocks(self, shape: Shape) -> Iterator[Bytes]:
        """Yield all images in order, uint8 ``(at most BLOCK, *shape)`` at a time."""
        workers = min(8, usable_cpus())
        with ThreadPoolExecutor(workers) as pool:
            for batch in filter(None, self.batches()):
                block = np.empty((len(batch), *shape), dtype=np.uint8)
                height, width = inspect_image(*batch[0]).size
                # Pillow releases the interpreter lock only within a decoder: threads double the
                # speed for large images and halve it for small ones.
                parts = workers if height * width > _SMALL else 1
                step = -(-len(batch) // parts)
                starts = range(0, len(batch), step)
                rows = [block[start : start + step] for start in starts]
                items = [batch[start : start + step] for start in starts]
                list(pool.map(self._decode_into, rows, items))
                yield block

    def _decode_into(self, block: Bytes, batch: list[Item]) -> None:
        shape = (int(block.shape[1]), int(block.shape[2]), int(block.shape[3]))
        for row, (name, content) in enumerate(batch):
            block[row] = decode_image(name, content, shape, self.bits, self.window)


@dataclass(frozen=True)
class PixelImages:
    """Images that are pixels already, uint8 ``(n, height, width, 1 or 3)``.

    Attributes
    ----------
    is_full : whether 255 is white whatever `image-bits` says, as the values were from 0 to 1.
    """

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)
    where: str
    pixels: Bytes
    bits: int = UNKNOWN_BITS
    is_full: bool = False

    def __len__(self) -> int:
        return len(self.pixels)

    def read_with(self, bits: int, window: Window) -> Self:
        """The same images, whose values have so many bits; they are not DICOM."""
        del window
        return self if self.is_full else replace(self, bits=bits)

    def survey(self) -> Survey:
        """Return the one size and number of channels of the array, and whether it has masks."""
        _, height, width, channels = self.pixels.shape
        depths = {1: (len(self), "all")} if self.pixels.max() == 1 else {}
        return Survey({(height, width): "all"}, channels == 3, depths)

    def blocks(self, shape: Shape) -> Iterator[Bytes]:
        """Yield all images in order, uint8 ``(at most BLOCK, *shape)`` at a time."""
        for start in range(0, len(self), BLOCK):
            with readable(self.where):
                block = _spread(self.pixels[start : start + BLOCK], self.bits)
            if block.shape[1:] != shape:
                from PIL import Image

                squeezed = block[..., 0] if block.shape[3] == 1 else block
                block = np.stack([to_shape(Image.fromarray(one), shape) for one in squeezed])
            yield block


LEAST_RANGE = 32
"""Largest value, of 255, that images must reach: masks of 0 and 1, and values up to 16, do not."""


def refuse_unused_range(pixels: NDArray[Any], where: str, bits: int = UNKNOWN_BITS) -> None:
    """Refuse images that are nearly black, as their values were meant for another range.

    Parameters
    ----------
    pixels : uint8 ``(n, height, width, channels)``; other points pass.
    bits : of `image-bits`; if they are stated, images are as they are meant.
    """
    is_images = pixels.dtype == np.uint8 and pixels.ndim == 4
    largest = int(pixels.max()) if is_images and len(pixels) and bits == UNKNOWN_BITS else 0
    if 0 < largest < LEAST_RANGE:
        raise UserError(
            f"{where}: the largest value of all images is {largest}, of 255, so that they are "
            f"nearly black. Spread their values over 0 to 255, as in x * {255 // largest}, set "
            f"image-bits = {largest.bit_length()} if {2 ** largest.bit_length() - 1} is white, or "
            "image-bits = 8 if they are so dark.",
            "image-bits",
        )


def _spread(values: Bytes, bits: int) -> Bytes:
    """Values of fewer than 8 bits as 0 to 255; others are unchanged.

    >>> _spread(np.array([0, 1, 15], np.uint8), 4)  # 255 / 15 = 17
    array([  0,  17, 255], dtype=uint8)
    """
    if not UNKNOWN_BITS < bits < 8:
        return values
    _refuse_other_range(values, bits)
    spread: Bytes = np.rint(values * (255 / (2**bits - 1))).astype(np.uint8)
    return spread


Images = EncodedImages | PixelImages
"""Images of one split or set, before their conversion to one shape."""


def join_blocks(points: Any, shape: Shape) -> Inputs:
    """All points in order, ``(n, *shape)``, of images or other points that have ``blocks``."""
    joined: Inputs = np.concatenate(list(points.blocks(shape)))
    return joined


def list_batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Cut ``items`` into lists of at most ``BLOCK``."""
    for start in range(0, len(items), BLOCK):
        yield list(items[start : start + BLOCK])


def file_images(where: str, files: Sequence[Path]) -> EncodedImages:
    """The images of ``files``, in this order."""
    items: list[Item] = [(str(file), file) for file in files]
    return EncodedImages(where, len(items), partial(list_batches, items))


def list_images(folder: Path, besides: Collection[Path] = ()) -> list[Path]:
    """All files under ``folder`` except ``besides``, sorted by path, each once whatever links lead
    to it; others than images are refused."""
    images = [image for image in files_once(folder) if image not in besides]
    if odd := [image for image in images if not image.name.lower().endswith(IMAGE_SUFFIXES)]:
        raise UserError(
            f"{odd[0]} is not an image; only {', '.join(IMAGE_SUFFIXES)} files may lie in a folder "
            "of images.",
            "folder-layout",
        )
    return images


def files_once(folder: Path) -> list[Path]:
    """Visible files under ``folder``, sorted. Of several paths to a file one without links counts,
    of several such the first."""
    files: list[tuple[bool, Path, Identity]] = []
    waiting, walked = [(False, folder)], set()
    while waiting:  # links last, as what they lead to may be there without them
        behind_link, parent = heappop(waiting)
        if (mark := identity(parent)) in walked:
            continue
        walked.add(mark)
        try:
            entries = [entry for entry in os.scandir(parent) if is_visible(entry.name)]
        except OSError as error:
            raise UserError(
                f"{parent} cannot be read ({reason(error)}).", "folder-missing"
            ) from error
        for entry in entries:
            path, is_link = parent / entry.name, behind_link or entry.is_symlink()
            # A path is asked where a link may lead to itself.
            if path.is_dir() if entry.is_symlink() else entry.is_dir():
                heappush(waiting, (is_link, path))
            else:
                files.append((is_link, path, identity(path)))
    first: dict[Identity, Path] = {}
    for _, path, mark in sorted(files, key=itemgetter(0, 1)):
        first.setdefault(mark, path)
    return sorted(first.values())


Identity = tuple[int, int] | Path
"""What is equal for two paths to one file: device and number, or a path that leads nowhere."""


def identity(path: Path) -> Identity:
    """What ``path`` leads to."""
    try:
        about = path.stat()
    except OSError:  # a link to nothing, or to itself: reading it says so
        return path
    return (about.st_dev, about.st_ino) if about.st_ino else path.resolve()


def refuse_shared(groups: Mapping[str, Iterable[Path]]) -> None:
    """Refuse files that lie in two of ``groups``, by names of these."""
    first: dict[Identity, tuple[str, Path]] = {}
    for name, files in groups.items():
        for file in files:
            other, path = first.setdefault(identity(file), (name, file))
            if other != name:
                raise UserError(
                    f"{path} and {file} are one file by a link, in {other} and in {name}: points "
                    "count once, so remove one.",
                    "files-contradict",
                )


class Inspected(NamedTuple):
    """What an image's header says."""

    size: tuple[int, int]
    color: bool
    deep: bool


def inspect_image(name: str, content: bytes | Path) -> Inspected:
    """Read an image's header."""
    with readable(name):
        if is_dicom(content):
            return Inspected(dicom_size(content), color=False, deep=False)
    with _open(name, content) as image:
        _read_late_tag(image, content)
        width, height = image.size
        if _orientation(image) >= 5:  # rotated by 90 degrees
            width, height = height, width
        return Inspected((height, width), _has_color(image), _is_deep(image))


def decode_image(
    name: str,
    content: bytes | Path,
    shape: Shape,
    bits: int = UNKNOWN_BITS,
    window: Window = None,
) -> Bytes:
    """Decode one image and convert it to ``shape``."""
    with _open(name, content, window) as image:
        converted = upright(_to_8_bits(image, bits), image)
        # Proportions of organs are signs of illness. Only DICOM has no format of Pillow.
        return to_shape(converted, shape) if image.format else _padded(converted, shape)


def _padded(image: Image.Image, shape: Shape) -> Bytes:
    """The pixels of an image as large as fits into ``shape``, in the middle of black."""
    height, width, channels = shape
    scale = min(height / image.height, width / image.width)
    rows, columns = (max(1, round(scale * side)) for side in (image.height, image.width))
    pixels = np.zeros(shape, np.uint8)
    top, left = (height - rows) // 2, (width - columns) // 2
    inside = to_shape(image, (rows, columns, channels))
    pixels[top : top + rows, left : left + columns] = inside
    return pixels


def upright(converted: Image.Image, image: Image.Image) -> Image.Image:
    """``converted`` by the orientation of the ``image`` that it was made from."""
    image.load()  # in a PNG the tag may stand behind the pixels
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    orientation = _orientation(image)
    return converted.transpose(turns[orientation]) if orientation > 1 else converted


def to_shape(image: Image.Image, shape: Shape) -> Bytes:
    """Return the pixels of an 8-bit ``image`` as uint8 of ``shape``, resized (bilinear) if
    necessary."""
    from PIL import Image

    height, width, channels = shape
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    mode = "L" if channels == 1 else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(shape)


@contextmanager
def _open(name: str, content: bytes | Path, window: Window = None) -> Iterator[Image.Image]:
    """Open one image, within :func:`readable`."""
    from PIL import Image

    with readable(name):
        # A pipe would never end.
        file = BytesIO(content) if isinstance(content, bytes) else regular_file(content)
        if is_dicom(content):
            yield Image.fromarray(read_dicom(content, window))
            return
        with Image.open(file) as image:
            _refuse_several(image)
            yield image


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Whatever Pillow raises about an image becomes a sentence with the reason."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise UserError(
            f"{name} is too large: an image may have {most:,} pixels, and it has more. Save a "
            "smaller copy of it.",
            "image-size",
        ) from error
    except (MemoryError, MissingPackageError):
        raise
    except Exception as error:  # for a broken file Pillow's decoders may raise anything
        is_other = isinstance(error, UnidentifiedImageError)
        why = "its content is none of these" if is_other else " ".join(reason(error).split())
        raise UserError(
            f"{name} cannot be read as an image ({why}); PNG, JPEG, BMP, GIF, TIFF, WebP and gray "
            "DICOM with 8 or 16 bits are.",
            "image-not-readable",
        ) from error


def _refuse_several(image: Image.Image) -> None:
    """Refuse a file with several images, such as the slices of a scan: one would stand for all."""
    if image.format == "TIFF":
        pages = getattr(image, "n_frames", 1)
        kinds = []
        for page in range(pages):
            image.seek(page)
            kinds.append(int(getattr(image, "tag_v2", {}).get(_PAGE_KIND, 0)))
        image.seek(0)
        pages = sum(not kind & _NO_PAGE for kind in kinds) if pages > 1 else 1
    elif image.format in {"GIF", "PNG", "WEBP"} and getattr(image, "is_animated", False):
        pages = int(getattr(image, "n_frames", 2))
    else:
        return
    if pages > 1:
        raise UserError(
            f"it holds {pages} images, and a point is one: save each as a file",
            "image-not-readable",
        )


def _orientation(image: Image.Image) -> int:
    """The camera's orientation tag, 1 (upright) to 8; `datasets` also applies it.

    What is no such tag counts as 1, as for viewers: other numbers, unreadable tags, XMP.
    """
    from PIL.Image import Exif

    tags = Exif()
    try:
        tags.load(image.info.get("exif", b""))
        value = tags.get(_ORIENTATION)
    except Exception:  # broken tags may raise anything, and say nothing
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _read_late_tag(image: Image.Image, content: bytes | Path) -> None:
    """Load a PNG whose tags stand behind its pixels, which Pillow reads with these."""
    if image.format != "PNG" or "exif" in image.info:
        return
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        file.seek(len(b"\x89PNG\r\n\x1a\n"))
        while len(head := file.read(8)) == 8 and head[4:] != b"eXIf":
            file.seek(int.from_bytes(head[:4]) + 4, os.SEEK_CUR)
    if head[4:] == b"eXIf":
        image.load()


def _has_color(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return image.mode not in _GRAY_MODES | _DEEP_MODES | {"F"}


def _is_deep(image: Image.Image) -> bool:
    return image.mode in _DEEP_MODES or _loses_bits(image)


def _loses_bits(image: Image.Image) -> bool:
    """Whether the file has 16 bits a channel, of which Pillow reads the upper 8: true for color and
    for transparency, before the pixels are read."""
    # A tile's last entry names the form of the pixels in the file, such as "RGB;16B".
    tiles = getattr(image, "tile", ())
    return image.mode not in _DEEP_MODES and any(";16" in str(tile[3]) for tile in tiles)


def _largest_value(name: str, content: bytes | Path) -> int:
    """The largest value of an image with more than 8 bits."""
    with _open(name, content) as image:
        upper_half = _loses_bits(image)
        values = np.asarray(as_written(image))
        if upper_half:
            return (
                int(values[..., : values.shape[2] - (image.mode in {"LA", "RGBA"})].max()) << 8
                | 255
            )
        _refuse_other_range(values, 16)
        return int(values.max())


def as_written(image: Image.Image) -> Image.Image:
    """The image with the values of its file: Pillow stretches those of a 16-bit PGM to 65535."""
    from PIL import Image

    # A tile's last entry names the largest value of the file, until the pixels are read.
    tiles = getattr(image, "tile", ())
    if image.format != "PPM" or image.mode != "I" or not tiles or tiles[0][3] == "I;16B":
        return image
    return Image.fromarray(np.rint(np.asarray(image) * (tiles[0][3][1] / 65535)).astype(np.int32))


def _refuse_other_range(values: NDArray[Any], bits: int) -> None:
    lowest, largest = int(values.min()), int(values.max())
    if lowest < 0 or largest >= 2**bits:
        odd = lowest if lowest < 0 else largest
        hint = "" if bits == 16 or lowest < 0 else "; image-bits says how many bits all have"
        raise UserError(
            f"it holds the value {odd}, and those of {bits} bits are 0 to {2**bits - 1}{hint}",
            "image-bits",
        )


def _to_8_bits(image: Image.Image, bits: int) -> Image.Image:
    """The image with values of 8 bits."""
    from PIL import Image

    if image.mode == "F":
        floats = np.asarray(image)
        if not ((floats >= 0) & (floats <= 1)).all():  # NaN fails both
            raise UserError(
                "its pixels are floats and not all in [0, 1], so they have no range",
                "image-not-readable",
            )
        return Image.fromarray(np.rint(floats * 255).astype(np.uint8))
    deep, upper_half = _is_deep(image), _loses_bits(image)
    if not deep:
        image.load()
        has_values = UNKNOWN_BITS < bits < 8 and image.mode in ("L", "RGB")
        return Image.fromarray(_spread(np.asarray(image), bits)) if has_values else image
    if bits == UNKNOWN_BITS:
        raise UserError(
            "it has 16 bits, and it is not known how many of them its values use: set image-bits, "
            "as in image-bits = 12 for values up to 4095",
            "image-bits",
        )
    if upper_half:
        if bits < 16:
            raise UserError(
                f"its colors have {bits} bits in 16, of which the lower 8 cannot be read: save it "
                "with 8 bits",
                "image-not-readable",
            )
        image.load()
        return image
    values = np.asarray(as_written(image))
    _refuse_other_range(values, bits)
    if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = 2**bits - 1 - values
    values = values >> (bits - 8) if bits >= 8 else _spread(values, bits)
    return Image.fromarray(values.astype(np.uint8))
