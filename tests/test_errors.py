"""Codes, values and sentences of errors."""

import pickle
import re

from fedul_flwr.errors import BadMessageError, OwnDataError, StorageError, UserError
from tests.sentences import FILE, PASSED_ON, ROOT, default_codes, listing, sites

ANNOUNCED = {code for code in default_codes().values() if code}


def test_sentences_are_those_of_the_golden_file() -> None:
    assert listing() == FILE.read_text(), "python -m tests.sentences writes them anew"


def test_every_error_names_a_code_of_the_page_and_the_page_no_other() -> None:
    page = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert len(page) == len(set(page)) <= 160
    source = "".join(file.read_text() for file in sorted((ROOT / "fedul_flwr").rglob("*.py")))
    without = [site.where for site in sites() if not site.code]
    used = {site.code for site in sites()} - {PASSED_ON} | ANNOUNCED
    assert without == []
    assert used - set(page) == set()
    assert [code for code in page if code not in used and f'"{code}"' not in source] == []


def test_an_error_keeps_its_code_and_values_on_the_way_to_another_process() -> None:
    for kind in (UserError, OwnDataError, StorageError, BadMessageError):
        error = pickle.loads(pickle.dumps(kind("No.", "unknown-name", name="x")))
        assert (type(error), str(error)) == (kind, "No.")
        assert (error.code, error.values) == ("unknown-name", {"name": "x"})


def test_an_error_without_a_code_has_that_of_its_class() -> None:
    assert StorageError("Full.").code == "file-not-writable"
    assert BadMessageError("Odd.").with_code == "Odd. [message-form]"


def test_an_error_in_a_file_is_read_with_its_code() -> None:
    for sentence in ("No.", "Two lines [a].\nThe second."):
        error = UserError.from_text(f"{UserError(sentence, 'run-failed').with_code}\n")
        assert (str(error), error.code) == (sentence, "run-failed")
    assert UserError.from_text("Of an older version.\n").code == ""
