"""One digest of all that the server says: whatever changes in it changes the digest."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.federated import asked
from fedul_flwr.federated.asked import code_digest, question
from fedul_flwr.federated.messages import FORGETFUL, SETTINGS

SETUP: dict[str, Any] = {SETTINGS: json.dumps({"method": "fedul"}), "class-names": ["a", "b"]}
TERMS: dict[str, Any] = {
    **{"run": 7, "setup": SETUP, "of": "update", "server_round": 3, "largest": 1.0},
    "asked": b"a" * 32,
}


@pytest.mark.parametrize(
    "change",
    [
        {"run": 8},
        {"setup": {**SETUP, "class-names": ["b", "a"]}},
        {"setup": {**SETUP, SETTINGS: json.dumps({"method": "fedul", "seed": 1})}},
        {"setup": {**SETUP, "means": [0.1]}},
        {"of": "heldout"},
        {"server_round": 4},
        {"largest": 2.0},
        {"asked": b"b" * 32},
    ],
    ids=str,
)
def test_a_question_with_anything_else_is_another(change: dict[str, Any]) -> None:
    assert question(**TERMS) != question(**{**TERMS, **change})


def test_a_question_is_the_same_in_any_order_and_whatever_a_client_has_lost() -> None:
    setup = dict(reversed([*SETUP.items()]))
    assert question(**{**TERMS, "setup": {**setup, FORGETFUL: True}}) == question(**TERMS)


def test_a_question_of_another_program_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    one = question(**TERMS)
    monkeypatch.setattr(asked, "code_digest", lambda *_: "0")
    assert question(**TERMS) != one


def test_a_program_is_all_its_sources_and_named_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those behind links, as a checkout has them."""
    package = tmp_path / "package"
    for name in ("part", "elsewhere"):
        (tmp_path / name).mkdir()
    (package / "federated").mkdir(parents=True)
    (package / "methods").symlink_to(tmp_path / "elsewhere")
    files = [package / "federated" / "ledger.py", tmp_path / "elsewhere" / "method.py"]
    own = tmp_path / "own_module_of_a_test.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(asked, "__file__", str(files[0]))
    for file in (*files, own):
        file.write_text("x = 1\n")
    digests = set()
    for file in (None, *files, own):
        if file is not None:
            file.write_text("x = 2\n")
        code_digest.cache_clear()
        digests.add((code_digest(), code_digest("own_module_of_a_test")))
    code_digest.cache_clear()
    assert len({alone for alone, _ in digests}) == 3
    assert len({together for _, together in digests}) == 4
    named = {**SETUP, SETTINGS: json.dumps({"method": "own_module_of_a_test:METHOD"})}
    questions = set()
    for text in ("x = 3\n", "x = 4\n"):
        own.write_text(text)
        code_digest.cache_clear()
        questions.add(question(**{**TERMS, "setup": named}))
    monkeypatch.undo()
    code_digest.cache_clear()
    assert len(questions) == 2
