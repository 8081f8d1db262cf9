"""DICOM files of the kinds that hospitals have: gray values, refusals, nothing of a header."""

import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.decode import decode_image, inspect_image
from fedul_flwr.data.dicom import read_dicom
from fedul_flwr.data.image_facts import survey_images
from fedul_flwr.data.local_data import open_points
from fedul_flwr.data.tables import TableOptions
from tests.data.conftest import write_png
from tests.support.deploy_checks import ready
from tests.support.refusals import refuses

pydicom = pytest.importorskip("pydicom")

from pydicom.dataset import Dataset, FileMetaDataset  # noqa: E402
from pydicom.encaps import encapsulate  # noqa: E402
from pydicom.pixels import apply_modality_lut, apply_voi_lut  # noqa: E402
from pydicom.uid import (  # noqa: E402
    MPEG2MPML,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    RLELossless,
    generate_uid,
)

PATIENT = "Mustermann^Erika"
RAMP = np.arange(64).reshape(8, 8)


def file_of(values: np.ndarray, bits: int = 12, **header: Any) -> Dataset:
    """A file with these stored values, of 16 bits each or of 8."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    made.PatientName, made.Modality = PATIENT, "DX"
    made.Rows, made.Columns = values.shape[-2:]
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    signed = bool((values < 0).any())
    made.PixelRepresentation = int(signed)
    made.BitsAllocated = 8 if bits <= 8 else 16
    made.BitsStored, made.HighBit = bits, bits - 1
    size = made.BitsAllocated // 8
    made.PixelData = values.astype(f"<{'i' if signed else 'u'}{size}").tobytes()
    made["PixelData"].VR = "OW" if size == 2 else "OB"
    for key, value in header.items():
        setattr(made, key, value)
    return made


def content(made: Dataset) -> bytes:
    stream = io.BytesIO()
    made.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def of_pydicom(made: Dataset) -> np.ndarray:
    """Its values as pydicom shows them, from 0 for the darkest to 1 for the brightest."""
    again = pydicom.dcmread(io.BytesIO(content(made)))
    shown = apply_voi_lut(apply_modality_lut(again.pixel_array, again), again).astype(float)
    # The ramps below reach both ends of their windows.
    gray = (shown - shown.min()) / (shown.max() - shown.min())
    return 1 - gray if again.PhotometricInterpretation == "MONOCHROME1" else gray


CT = {"Modality": "CT", "RescaleSlope": 1, "RescaleIntercept": -1024}
WINDOW = {"WindowCenter": 1500, "WindowWidth": 2000}
LUT = Dataset()
LUT.LUTDescriptor = [4096, 0, 10]
LUT.LUTData = (1023 * (np.arange(4096) / 4095) ** 2).astype("<u2").tobytes()
SHOWN = {
    "CR of 10 bits": file_of(RAMP * 16, 10, WindowCenter=512, WindowWidth=700),
    "DX of 12 bits": file_of(RAMP * 65, 12, **WINDOW),
    "DX of 16 bits": file_of(RAMP * 1040, 16, WindowCenter=30000, WindowWidth=40000),
    "mammogram, white at 0": file_of(
        RAMP * 65, 12, Modality="MG", PhotometricInterpretation="MONOCHROME1", **WINDOW
    ),
    "CT slice": file_of(RAMP * 65, 12, **CT, WindowCenter=40, WindowWidth=400),
    "CT slice of signed values": file_of(
        RAMP * 65 - 1024, 16, **{**CT, "RescaleIntercept": 0}, WindowCenter=40, WindowWidth=400
    ),
    "two windows, the first counts": file_of(
        RAMP * 65, 12, **CT, WindowCenter=[40, 600], WindowWidth=[400, 1500]
    ),
    "exact window": file_of(RAMP * 65, 12, **WINDOW, VOILUTFunction="LINEAR_EXACT"),
    "a table in place of a window": file_of(RAMP * 65, 12, VOILUTSequence=[LUT]),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_gray_values_are_those_that_pydicom_shows(kind: str) -> None:
    made = SHOWN[kind]
    shown = decode_image(kind, content(made), (8, 8, 1))[..., 0]
    np.testing.assert_allclose(shown / 255, of_pydicom(made), atol=0.5 / 255 + 1e-9)


def test_a_window_by_hand() -> None:
    # Center 101 and width 201: black up to 0, white above 200, (x - 100.5) / 200 + 1/2 between.
    made = file_of(np.array([[0, 1, 100, 101, 200, 900]]), WindowCenter=101, WindowWidth=201)
    gray = read_dicom(content(made))
    assert gray.tolist() == [[0, 1, 127, 128, 254, 255]]
    # A stated one wins: 0 of width 2 from 99.5 to 100.5.
    assert read_dicom(content(made), (100.5, 2.0)).tolist() == [[0, 0, 128, 255, 255, 255]]


def test_without_a_window_the_stored_bits_are_the_range() -> None:
    made = file_of(np.array([[0, 2048, 4095]]))
    assert read_dicom(content(made)).tolist() == [[0, 128, 255]]
    inverse = file_of(np.array([[0, 2048, 4095]]), PhotometricInterpretation="MONOCHROME1")
    assert read_dicom(content(inverse)).tolist() == [[255, 127, 0]]
    with refuses("image-not-readable", match="image-window"):
        decode_image("slice", content(file_of(RAMP, **CT)), (8, 8, 1))


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_is_black(kind: str) -> None:
    values = np.array([[0, 5, 9, 4095]])
    made = file_of(values, PhotometricInterpretation=kind, PixelPaddingValue=0)
    assert read_dicom(content(made))[0, 0] == 0
    made.PixelPaddingRangeLimit = 5
    assert read_dicom(content(made))[0, :2].tolist() == [0, 0]
    assert read_dicom(content(made))[0, 2:].tolist() == ([254, 0] if kind[-1] == "1" else [1, 255])


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_lossless_compression_changes_nothing(syntax: Any) -> None:
    values = np.kron(RAMP * 65, np.ones((8, 8), int))
    plain = read_dicom(content(file_of(values, 12, **WINDOW)))
    packed = file_of(values, 12, **WINDOW)
    packed.compress(syntax, generate_instance_uid=False)
    np.testing.assert_array_equal(read_dicom(content(packed)), plain)


REFUSED = {
    "several frames": file_of(np.stack([RAMP, RAMP]), NumberOfFrames=2),
    "colors": file_of(
        np.zeros((8, 24)),
        8,
        **{"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"},
        **{"PlanarConfiguration": 0, "Columns": 8},
    ),
    "shorter than it says": file_of(RAMP, Rows=9),
    "a window without width": file_of(RAMP, WindowCenter=3, WindowWidth=0),
}


@pytest.mark.parametrize("kind", [*REFUSED, "video", "no pixels", "a number that is none"])
def test_other_kinds_are_refused_without_a_word_of_the_header(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    made = REFUSED.get(kind) or file_of(RAMP)
    if kind == "video":
        made.file_meta.TransferSyntaxUID = MPEG2MPML
        made.PixelData = encapsulate([b"\x00\x01"])
    if kind == "no pixels":
        del made.PixelData
    packed = content(made)
    if kind == "a number that is none":
        made = file_of(RAMP, WindowCenter="11", WindowWidth="22")
        packed = content(made).replace(b"11", b"Er").replace(b"22", b"ik")
    caplog.set_level(logging.DEBUG)
    with (
        warnings.catch_warnings(record=True) as said,
        refuses("image-not-readable") as caught,
    ):
        warnings.simplefilter("always")
        decode_image("scan", packed, (8, 8, 1))
    texts = [str(caught.value), caplog.text, *capfd.readouterr(), *map(str, said)]
    assert not any(word in text for text in texts for word in ("Erika", "Muster", "'Er", "'ik"))


def test_a_folder_of_scans_are_points(tmp_path: Path) -> None:
    for name, made in (("a", "DX of 12 bits"), ("b", "CT slice")):
        (tmp_path / f"{name}.dcm").write_bytes(content(SHOWN[made]))
    names, points = open_points(tmp_path, (8, 8, 1))
    assert names == ["a.dcm", "b.dcm"]
    assert inspect_image("a", tmp_path / "a.dcm").size == (8, 8)
    [block] = points.blocks((8, 8, 1))  # type: ignore[union-attr]
    for row, made in enumerate(("DX of 12 bits", "CT slice")):
        np.testing.assert_array_equal(block[row, ..., 0], read_dicom(content(SHOWN[made])))
    stated = points.read_with(0, (0.0, 100.0))  # type: ignore[union-attr]
    [other] = stated.blocks((8, 8, 1))
    assert (other != block).any()
    assert TableOptions(window=(0.0, 100.0)).identity != TableOptions().identity


def test_other_proportions_are_padded_and_not_squeezed() -> None:
    # 4 rows of 8 columns, white: in 8 x 8 they are rows 2 to 5, in 4 x 4 rows 1 and 2.
    wide = content(file_of(np.full((4, 8), 4095)))
    for side, rows in ((8, slice(2, 6)), (4, slice(1, 3))):
        expected = np.zeros((side, side))
        expected[rows] = 255
        np.testing.assert_array_equal(decode_image("x", wide, (side, side, 1))[..., 0], expected)
    # 8 rows of 4 columns in 4 x 6 of color: 4 rows of 2 columns, the columns 2 and 3.
    tall = decode_image("x", content(file_of(np.full((8, 4), 4095))), (4, 6, 3))
    assert (tall[:, 2:4] == 255).all()
    assert tall.sum() == 255 * 4 * 2 * 3
    assert (decode_image("x", wide, (2, 4, 1)) == 255).all()  # equal proportions fill the image


def test_an_owner_sees_sizes_spacings_windows_and_modalities(tmp_path: Path) -> None:
    ct = {**CT, "WindowCenter": [40, 600], "WindowWidth": [400, 1500], "PixelSpacing": [0.5, 0.25]}
    for number in range(2):
        (tmp_path / f"{number}.dcm").write_bytes(content(file_of(RAMP, **ct)))
    wide = file_of(RAMP.reshape(4, 16), ImagerPixelSpacing=[0.1388, 0.1388], Modality="ERIKA1")
    (tmp_path / "wide.dcm").write_bytes(content(wide))
    lines = [*survey_images(tmp_path, (8, 8, 1))]
    assert lines[:5] == [
        "DICOM images: 3",
        "modality: CT (2), none (1)",
        "size: 8x8 (2), 4x16 (1)",
        "spacing: 0.5x0.25 mm (2), 0.139x0.139 mm (1)",
        "window: 40,400 (2), none (1)",
    ]
    assert lines[5].startswith("warning: 1 of 3 images have other proportions than 8x8")
    assert lines[6].startswith("warning: pixel spacings differ")
    (tmp_path / "wide.dcm").unlink()
    assert not [line for line in survey_images(tmp_path, (8, 8, 1)) if "warning" in line]
    write_png(tmp_path / "other" / "0.png", RAMP.astype(np.uint8))
    assert not [*survey_images(tmp_path / "other", (8, 8, 1))]


def test_deploy_check_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sound", "ill"):
        (tmp_path / "ward" / name).mkdir(parents=True)
        for number in range(2):
            made = file_of(RAMP * 65, 12, **WINDOW)
            (tmp_path / "ward" / name / f"{number}.dcm").write_bytes(content(made))
    lines = ready("fedmatch")
    assert {"DICOM images: 4", "modality: DX (4)", "window: 1500,2000 (4)"} <= {*lines}
