"""Pixels of DICOM files: one gray image of 8 bits, as a viewer shows it.

Of the rest of a file, its owner is shown size, spacing, window and modality. A header names a
patient, so no value of it is in a message: what pydicom says of a wrong one would quote it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.errors import UserError, require

if TYPE_CHECKING:
    from pydicom import Dataset

_MARK, _PREAMBLE = b"DICM", 128
_DECODERS = ("pylibjpeg", "libjpeg", "openjpeg", "rle")
_BEYOND = 1e12
"""Further from any window than any value of a file."""


def is_dicom(content: bytes | Path) -> bool:
    """Whether a file is of this form; only its first bytes are read."""
    if isinstance(content, bytes):
        start = content[: _PREAMBLE + len(_MARK)]
    else:
        with regular_file(content).open("rb") as file:  # a pipe would never end
            start = file.read(_PREAMBLE + len(_MARK))
    return start[_PREAMBLE:] == _MARK


def dicom_size(content: bytes | Path) -> tuple[int, int]:
    """Height and width, by the header alone."""
    with _opened(content, pixels=False) as file:
        return int(file.Rows), int(file.Columns)


class Facts(NamedTuple):
    """What a header says of the image, in words."""

    modality: str
    size: str
    spacing: str
    window: str


def dicom_facts(content: bytes | Path) -> Facts:
    """What decides how an image is shown, and what a pixel is."""
    with _opened(content, pixels=False) as file:
        spacing = file.get("PixelSpacing") or file.get("ImagerPixelSpacing")
        window = "a table" if file.get("VOILUTSequence") else "none"
        if window == "none" and "WindowCenter" in file and "WindowWidth" in file:
            center, width = (np.ravel(w)[0] for w in (file.WindowCenter, file.WindowWidth))
            window = f"{float(center):g},{float(width):g}"
        modality = str(file.get("Modality", ""))
        return Facts(
            modality if modality.isalnum() and len(modality) <= 4 else "none",
            f"{int(file.Rows)}x{int(file.Columns)}",
            "x".join(f"{float(part):.3g}" for part in spacing) + " mm" if spacing else "none",
            window,
        )


def read_dicom(content: bytes | Path, window: tuple[float, float] | None = None) -> Bytes:
    """Pixels ``(height, width)`` from 0, black, to 255.

    Stored values are rescaled (modality LUT), and a window maps them to gray (VOI LUT, part 3 of
    the standard, C.11.2). In MONOCHROME1 the least value is white. Padding is black.

    ``window`` is center and width; by default the file's first one. Without one all values that
    the stored bits allow are shown, unless they are rescaled, as those of CT.
    """
    with _opened(content, pixels=True) as file:
        stored = np.asarray(file.pixel_array)
        gray = _in_gray(file, stored, window)
        if file.PhotometricInterpretation == "MONOCHROME1":
            gray = 1 - gray
        pixels = np.rint(255 * gray).astype(np.uint8)
        pixels[_padding(file, stored)] = 0
        return pixels


@contextmanager
def _opened(content: bytes | Path, *, pixels: bool) -> Iterator[Dataset]:
    """Context with a file, or its header alone; what goes wrong there is said without a value."""
    require("dicom", "A DICOM file", "pydicom")
    from pydicom import dcmread

    # Both quote values, and images are decoded in several threads.
    warnings.filterwarnings("ignore", module="pydicom")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    try:
        source = BytesIO(content) if isinstance(content, bytes) else content
        file = dcmread(source, stop_before_pixels=not pixels)
        if ("PixelData" if pixels else "Rows") not in file:
            raise _unfit("it has no pixels")
        _refuse_other_kinds(file)
        yield file
    except (UserError, MemoryError):
        raise
    except Exception:  # whatever a wrong header makes pydicom raise
        raise _unfit("its header or its pixels are damaged, or of no form that is read") from None


def _refuse_other_kinds(file: Dataset) -> None:
    """Refuse what is not one gray image, or is compressed in a form that nothing here decodes."""
    from pydicom.pixels.decoders.base import get_decoder

    if int(file.get("NumberOfFrames") or 1) > 1:
        raise _unfit("it has several frames, and a point is one image: save each as a file")
    if file.SamplesPerPixel != 1 or not file.PhotometricInterpretation.startswith("MONOCHROME"):
        raise _unfit("it has colors, and X-rays and slices are gray: save it as PNG")
    syntax = file.file_meta.TransferSyntaxUID
    try:
        can_decode = get_decoder(syntax).is_available
    except NotImplementedError:
        can_decode = False
    if not can_decode:
        require("dicom", "A compressed DICOM file", *_DECODERS)
        name = syntax.name if syntax.is_transfer_syntax else "an unknown transfer syntax"
        raise _unfit(f"it is in {name}, which cannot be decoded")


def _in_gray(
    file: Dataset, stored: NDArray[Any], window: tuple[float, float] | None
) -> NDArray[np.float64]:
    """Values from 0 to 1 by a window, in ascending order of what was measured."""
    from pydicom.pixels.processing import apply_modality_lut, apply_voi, apply_windowing

    values = apply_modality_lut(stored, file)
    if window is None and file.get("VOILUTSequence"):
        most = 2 ** int(file.VOILUTSequence[0].LUTDescriptor[2]) - 1
        gray: NDArray[np.float64] = apply_voi(values, file) / most
        return np.clip(gray, 0, 1)
    if window is not None:
        file.WindowCenter, file.WindowWidth = window
        file.VOILUTFunction = "LINEAR"
    elif "WindowCenter" not in file or "WindowWidth" not in file:
        if file.PixelRepresentation or not np.array_equal(values, stored):
            raise _unfit(
                "it has no window, and its values have a unit: set image-window to the center and "
                "width for all, as in image-window = '40,400'"
            )
        return np.asarray(values, np.float64) / (2.0 ** int(file.BitsStored) - 1)
    # The gray of all that is below and above a window stands at the ends.
    shown = apply_windowing(np.append(values.astype(np.float64), [-_BEYOND, _BEYOND]), file)
    black, white = shown[-2:]
    return np.asarray((shown[:-2] - black) / (white - black)).reshape(values.shape)


def _padding(file: Dataset, stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Which pixels were added around the image."""
    if "PixelPaddingValue" not in file:
        return np.zeros(stored.shape, bool)
    ends = (
        int(file.PixelPaddingValue),
        int(file.get("PixelPaddingRangeLimit", file.PixelPaddingValue)),
    )
    return np.asarray((stored >= min(ends)) & (stored <= max(ends)))


def _unfit(why: str) -> UserError:
    return UserError(why, "image-not-readable")
