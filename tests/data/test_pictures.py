"""Pictures as people have them: 10 to 16 bits, color among gray, strays, names of other systems."""

import struct
import unicodedata
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from fedul_flwr.data.decode import decode_image, inspect_image, list_images
from fedul_flwr.data.local_data import (
    LABELS_FILE,
    client_folders,
    load_partly_labeled,
    load_unlabeled_sets,
    open_points,
)
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import TableOptions
from tests.data.conftest import pixels, png, write_png
from tests.support.refusals import refuses

GRAY = pixels(1, 4, 5)[0]
DEEP = GRAY.astype(np.uint16) * 16  # the same of 12 bits
SIZE = (4, 5, 1)


def write_set(root: Path, train: NDArray[Any], test: NDArray[Any]) -> str:
    for split, images in (("train", train), ("test", test)):
        for number, image in enumerate(images):
            write_png(root / split / "ab"[number % 2] / f"{number}.png", image)
    return str(root)


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_the_upper_8_of_the_bits_that_training_uses_are_taken(tmp_path: Path, bits: int) -> None:
    train = pixels(4, 4, 5).astype(np.uint16) * 2 ** (bits - 8)
    train[0, 0, 0] = 2**bits - 1
    test = np.full((2, 4, 5), 2 ** (bits - 1), np.uint16)  # a dark split has the same scale
    source = load_source(write_set(tmp_path, train, test))
    assert source.bits == bits
    order = [0, 2, 1, 3]  # class by class
    expected = (train[order] >> (bits - 8)).astype(np.uint8)
    np.testing.assert_array_equal(source.train.inputs[..., 0], expected)
    assert (np.asarray(source.test.inputs) == 128).all()


def test_arrays_of_0_and_1_are_black_and_white(tmp_path: Path) -> None:
    masks = pixels(4, 4, 5) % 2
    np.savez(tmp_path / "train.npz", images=masks, labels=[0, 1, 0, 1])
    np.savez(tmp_path / "test.npz", images=masks, labels=[0, 1, 0, 1])
    source = load_source(str(tmp_path))
    assert source.bits == 1
    np.testing.assert_array_equal(source.train.inputs[..., 0], masks * 255)
    # Truth values and floats have a white of their own: 1.
    np.savez(tmp_path / "test.npz", images=masks.astype(np.float32), labels=[0, 1, 0, 1])
    np.testing.assert_array_equal(load_source(str(tmp_path)).test.inputs[..., 0], masks * 255)
    for split in ("train", "test"):
        np.savez(tmp_path / split, images=masks.astype(bool), labels=[0, 1, 0, 1])
    np.testing.assert_array_equal(load_source(str(tmp_path)).train.inputs[..., 0], masks * 255)
    with refuses("image-not-readable"):  # 2 is no value of 1 bit
        decode_image("x.png", png(masks[0] * 2), SIZE, source.bits)


@pytest.mark.parametrize("form", ["files", "array"])
def test_values_of_few_bits_are_refused_until_image_bits_says_what_is_white(
    tmp_path: Path, form: str
) -> None:
    images = np.array([[[0, 3], [8, 15]]] * 2, np.uint8)
    if form == "files":
        write_set(tmp_path, images, images)
    else:
        for split in ("train", "test"):
            np.savez(tmp_path / split, images=images, labels=[0, 1])

    def first(bits: int) -> list[list[int]]:
        source = load_source(str(tmp_path), table=TableOptions(bits=bits))
        return np.asarray(source.train.inputs)[0, ..., 0].tolist()

    with refuses("image-bits"):
        first(0)
    assert first(4) == [[0, 51], [136, 255]]  # 255 / 15 = 17 times 3, 8 and 15
    assert first(5) == [[0, 25], [66, 123]]  # 255 / 31 = 8.226 times 3, 8 and 15
    assert first(8) == images[0].tolist()
    with refuses("image-not-readable"):  # 8 and 15 are beyond 3 bits
        first(3)


def test_a_test_value_beyond_the_bits_of_the_training_is_refused(tmp_path: Path) -> None:
    deep = np.full((2, 4, 5), 4000, np.uint16)
    dataset = write_set(tmp_path, deep, deep * 2)
    with refuses("image-not-readable"):
        load_source(dataset)


def test_a_16_bit_picture_is_refused_where_nobody_knows_its_bits(tmp_path: Path) -> None:
    with refuses("image-not-readable"):
        decode_image("x.png", png(DEEP), SIZE)
    write_png(tmp_path / "own" / "a" / "x.png", DEEP)
    with refuses("image-not-readable"):
        load_partly_labeled(tmp_path / "own", ("a", "b"), SIZE)
    found = load_partly_labeled(tmp_path / "own", ("a", "b"), SIZE, table=TableOptions(bits=12))
    np.testing.assert_array_equal(found.inputs[0, ..., 0], GRAY)


def pgm(largest: int) -> bytes:
    return f"P5\n5 4\n{largest}\n".encode() + DEEP.astype(">u2").tobytes()


KINDS = {
    "16 bit": encoded(Image.fromarray(DEEP), "TIFF"),
    "32 bit": encoded(Image.fromarray(GRAY.astype(np.int32) * 16), "TIFF"),
    "floats": encoded(Image.fromarray((GRAY / np.float32(255)).astype(np.float32)), "TIFF"),
    "8 bit": encoded(Image.fromarray(GRAY), "BMP"),
    "white is zero": encoded(Image.fromarray(4095 - DEEP), "TIFF", tiffinfo={262: 0}),
    **{f"PGM up to {largest}": pgm(largest) for largest in (65535, 65534, 4095)},
    "PGM as text": b"P2 5 4 4095\n" + " ".join(map(str, DEEP.flat)).encode(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_gray_file_has_the_same_values(kind: str) -> None:
    assert not inspect_image("x", KINDS[kind]).color
    np.testing.assert_array_equal(decode_image("x", KINDS[kind], SIZE, 12)[..., 0], GRAY)


def test_a_16_bit_picture_is_turned_by_the_orientation_of_the_camera() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(Image.fromarray(DEEP), "PNG", exif=exif)
    found = decode_image("x", content, (5, 4, 1), 12)
    np.testing.assert_array_equal(found[..., 0], np.rot90(GRAY, -1))


def test_values_without_a_range_are_refused() -> None:
    whole = GRAY.astype(np.int32)
    for values, bits in ((whole - 300, 12), (whole + 70000, 16), (GRAY.astype(np.float32), 12)):
        with refuses("image-not-readable"):
            decode_image("x", encoded(Image.fromarray(values), "TIFF"), SIZE, bits)


def deep_color_png(high: NDArray[np.uint8]) -> bytes:
    """A PNG with 16 bits for each of three colors, whose upper 8 bits are ``high``."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    height, width, _ = high.shape
    rows = (high.astype(">u2") << 8 | 7).astype(">u2")
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def test_16_bit_colors_are_read_where_they_use_all_bits_and_refused_else(tmp_path: Path) -> None:
    colors = pixels(1, 4, 5, 3)[0]
    colors[0, 0] = 255
    shape = (4, 5, 3)
    np.testing.assert_array_equal(decode_image("x", deep_color_png(colors), shape, 16), colors)
    for split in ("train", "test"):
        (tmp_path / split / "a").mkdir(parents=True)
        (tmp_path / split / "a" / "1.png").write_bytes(deep_color_png(colors // 16))
    with refuses("image-not-readable"):
        load_source(str(tmp_path))


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_color_picture_in_any_split_makes_all_have_color(tmp_path: Path, split: str) -> None:
    gray, color = pixels(3, 4, 5), pixels(1, 4, 5, 3)[0]
    write_set(tmp_path, gray, gray)
    write_png(tmp_path / split / "a" / "9.png", color)
    source = load_source(str(tmp_path))
    assert source.input_shape == (4, 5, 3)
    both = {"train": source.train.inputs, "test": source.test.inputs}
    np.testing.assert_array_equal(both[split][2], color)
    np.testing.assert_array_equal(both[split][0], np.repeat(gray[0][..., None], 3, axis=2))


@pytest.mark.parametrize(("form", "suffix"), [("GIF", "gif"), ("TIFF", "tif"), ("PNG", "png")])
def test_a_file_of_several_pictures_is_refused(form: str, suffix: str) -> None:
    frames = [Image.fromarray(image) for image in pixels(3, 4, 5)]
    content = encoded(frames[0], form, save_all=True, append_images=frames[1:])
    with refuses("image-not-readable"):
        inspect_image(f"x.{suffix}", content)


def test_a_picture_that_is_too_large_is_refused_for_its_size() -> None:
    content = encoded(Image.new("1", (20_000, 10_000)), "PNG")
    with refuses("image-size"):
        inspect_image("scan.png", content)


STRAYS = ("Thumbs.db", ".DS_Store", "._0.png", "desktop.ini", "__MACOSX/a/._0.png", "@eaDir/x.jpg")


def leave_strays(folder: Path) -> None:
    for name in STRAYS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\0\5\x16\7")


def test_strays_are_no_class_no_set_and_no_picture(tmp_path: Path) -> None:
    images = pixels(4, 4, 5)
    dataset = write_set(tmp_path / "set", images, images)
    for split in ("train", "test"):
        leave_strays(tmp_path / "set" / split)
        leave_strays(tmp_path / "set" / split / "a")
    assert load_source(dataset).class_names == ("a", "b")
    owner = tmp_path / "set" / "train"
    assert len(load_partly_labeled(owner, ("a", "b"), SIZE).names) == 4
    assert len(load_partly_labeled(owner, ("a", "b"), SIZE, form="class-folders").names) == 4
    (owner / "priors.csv").write_text("set,a,b\na,0.8,0.2\nb,0.1,0.9\n")
    assert load_unlabeled_sets(owner, ("a", "b"), 2, SIZE).names == ("a", "b")
    (owner / "priors.csv").unlink()
    assert open_points(owner, SIZE)[0] == ["a/0.png", "a/2.png", "b/1.png", "b/3.png"]


@pytest.mark.parametrize("on_disk", ["NFD", "NFC"])
@pytest.mark.parametrize("written", ["NFD", "NFC"])
def test_names_compare_in_any_form_of_umlauts(tmp_path: Path, on_disk: str, written: str) -> None:
    def form(kind: Any, name: str) -> str:
        return unicodedata.normalize(kind, name)

    disk = [form(on_disk, name) for name in ("März", "Mai")]
    for number, name in enumerate(disk):
        write_png(tmp_path / "sets" / name / "0.png", pixels(2, 4, 5)[number])
        write_png(tmp_path / "files" / name / f"{disk[0]}.png", pixels(2, 4, 5)[number])
    classes = [form(written, "Bär"), "Elch"]
    rows = "März,0.8,0.2\nMai,0.3,0.7\n"
    told = form(written, f"set,{form(on_disk, 'Bär')},Elch\n{rows}")
    (tmp_path / "sets" / "priors.csv").write_text(told, encoding="utf-8")
    sets = load_unlabeled_sets(tmp_path / "sets", classes, 2, SIZE)
    np.testing.assert_array_equal(sets.priors, [[0.8, 0.2], [0.3, 0.7]])
    labels = form(written, "name,label\n./März/März.png,Bär\nMai\\März.png,Elch\n")
    (tmp_path / "files" / "labels.csv").write_text(labels, encoding="utf-8")
    found = load_partly_labeled(tmp_path / "files", [form(on_disk, "Bär"), "Elch"], SIZE)
    assert dict(zip(found.names, found.labels.tolist(), strict=True)) == {
        "März/März.png": 0,
        "Mai/März.png": 1,
    }
    (tmp_path / "sets" / "priors.csv").unlink()
    by_folder = load_partly_labeled(tmp_path / "sets", [form(written, "März"), "Mai"], SIZE)
    assert sorted(by_folder.labels.tolist()) == [0, 1]


def test_a_picture_counts_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    real = tmp_path / "cats" / "v1"
    write_png(real / "0.png", GRAY)
    write_png(real / "1.png", GRAY)  # a copy is another picture
    outside = tmp_path / "more" / "2.png"
    write_png(outside, GRAY)
    folder = tmp_path / "cats"
    (folder / "current").symlink_to("v1")
    (folder / "self").symlink_to(".")
    (real / "up").symlink_to("..")
    (folder / "a.png").symlink_to(real / "0.png")
    (real / "x.png").hardlink_to(real / "1.png")
    (folder / "other").symlink_to(outside.parent)
    (folder / "again.png").symlink_to(outside)
    expected = [real / "0.png", real / "1.png", folder / "again.png"]
    assert list_images(folder) == sorted(expected)
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "nothing.png").symlink_to("away.png")
    assert len(list_images(folder)) == 5
    with refuses("image-not-readable"):
        inspect_image("x", folder / "nothing.png")


@pytest.mark.parametrize("link", ["train/b/0.png", "test/a/0.png", "train/c", "train/all"])
def test_a_picture_in_two_classes_or_both_halves_is_refused(tmp_path: Path, link: str) -> None:
    dataset = write_set(tmp_path, pixels(4, 4, 5), pixels(2, 4, 5))
    assert len(load_source(dataset).train.labels) == 4
    at = tmp_path / link
    at.unlink(missing_ok=True)
    if at.suffix:
        at.hardlink_to(tmp_path / "train" / "a" / "2.png")
    else:
        at.symlink_to("a" if link == "train/c" else ".")
    with refuses("files-contradict", match="one file by a link"):
        load_source(dataset)


def test_a_picture_of_an_owner_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "owner"
    for number, image in enumerate(pixels(3, 4, 5)):
        write_png(folder / "v1" / f"{number}.png", image)
    (folder / "current").symlink_to("v1")
    (folder / LABELS_FILE).write_text("name,label\ncurrent/2.png,a\nv1/0.png,b\n")
    points = load_partly_labeled(folder, ["a", "b"], SIZE)
    labels = dict(zip(points.names, points.labels.tolist(), strict=True))
    assert labels == {"v1/0.png": 1, "v1/1.png": -1, "v1/2.png": 0}
    names, images = open_points(folder / "v1", SIZE)
    assert names == ["0.png", "1.png", "2.png"]
    assert len(images) == 3


def test_links_between_classes_or_clients_of_owners_are_refused(tmp_path: Path) -> None:
    owners = tmp_path / "owners"
    write_png(owners / "one" / "a" / "0.png", GRAY)
    write_png(owners / "one" / "b" / "1.png", GRAY)
    assert len(load_partly_labeled(owners / "one", ["a", "b"], SIZE).names) == 2
    (owners / "one" / "b" / "0.png").symlink_to(owners / "one" / "a" / "0.png")
    with refuses("files-contradict", match="one file by a link"):
        load_partly_labeled(owners / "one", ["a", "b"], SIZE)
    (owners / "two").symlink_to("one")
    with refuses("files-contradict", match="one file by a link"):
        client_folders(owners, 2)


UPRIGHT = np.arange(20, dtype=np.uint8).reshape(4, 5) * 10


def tag(value: bytes, kind: int = 3, count: int = 1) -> bytes:
    """EXIF with an orientation of any type: big-endian, one entry of tag 0x112."""
    entry = struct.pack(">HHI", 0x0112, kind, count) + value.ljust(4, b"\0")
    return b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", 1) + entry + bytes(4)


XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf'
    b'-syntax-ns#"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation='
    b'"6"/></rdf:RDF></x:xmpmeta>'
)
NO_ORIENTATIONS = {
    **{str(number): tag(struct.pack(">H", number)) for number in (0, 1, 9, 90, 65535)},
    "text": tag(b"6\0", kind=2, count=2),
    "two numbers": tag(struct.pack(">HH", 6, 6), count=2),
    "a fraction": tag(struct.pack(">I", 8), kind=5),
    "cut off": tag(struct.pack(">H", 6))[:18],
    "no TIFF": b"Exif\0\0nonsense",
    "empty": b"Exif\0\0",
}


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # of Pillow, as it opens a JPEG
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("what", NO_ORIENTATIONS)
def test_what_no_camera_writes_turns_no_picture(form: str, what: str) -> None:
    options = {"PNG": {}, "JPEG": {"quality": 100}, "WEBP": {"lossless": True}}[form]
    content = encoded(Image.fromarray(UPRIGHT), form, exif=NO_ORIENTATIONS[what], **options)
    assert inspect_image("x", content).size == (4, 5)
    pixels = decode_image("x", content, SIZE)[..., 0]
    np.testing.assert_allclose(pixels, UPRIGHT, atol=6 if form == "JPEG" else 1)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_an_orientation_of_xmp_is_ignored(form: str) -> None:
    if form == "JPEG":
        content = encoded(Image.fromarray(UPRIGHT), form, xmp=XMP, exif=tag(b"", kind=3))
    else:
        texts = PngImagePlugin.PngInfo()
        texts.add_itxt("XML:com.adobe.xmp", XMP.decode())
        content = encoded(Image.fromarray(UPRIGHT), form, pnginfo=texts, exif=b"Exif\0\0")
    assert inspect_image("x", content).size == (4, 5)
    decode_image("x", content, SIZE)


TURNS = {
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT, -1),
    7: UPRIGHT[::-1, ::-1].T,
    8: np.rot90(UPRIGHT),
}
"""What a viewer shows of the stored pixels for each orientation (EXIF 2.3, tag 0x0112)."""


@pytest.mark.parametrize("where", ["before", "behind", "TIFF"])
@pytest.mark.parametrize("orientation", TURNS)
def test_orientations_of_cameras_turn_pictures(orientation: int, where: str) -> None:
    shown = TURNS[orientation]
    exif = tag(struct.pack(">H", orientation))
    image = Image.fromarray(UPRIGHT)
    if where == "TIFF":
        content = encoded(image, "TIFF", tiffinfo={0x0112: orientation})
    else:
        content = encoded(image, "PNG", exif=exif)
    if where == "behind":  # the chunk stands behind the pixels
        plain = encoded(image, "PNG")
        at = content.index(b"eXIf") - 4
        chunk = content[at : at + 12 + int.from_bytes(content[at : at + 4])]
        content = plain[:-12] + chunk + plain[-12:]
    assert inspect_image("x", content).size == shown.shape
    pixels = decode_image("x", content, (*shown.shape, 1))[..., 0]
    np.testing.assert_array_equal(pixels, shown)
