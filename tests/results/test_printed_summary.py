"""The summary in terminals of several widths, and in a file."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fedul_flwr.results import printed_summary
from fedul_flwr.results.printed_summary import _in_lines

PATH = "/home/somebody/a/rather/long/folder/of/results/model.safetensors"
ROWS: Mapping[str, str] = {
    "test error": "2.22 % (round 17 of 30, by validation)",
    "of the model": "100.02 % up, 100.00 % down, per client and round; 100 % are one whole model",
    "model": PATH,
}


def lines(monkeypatch: pytest.MonkeyPatch, width: int | None) -> list[str]:
    monkeypatch.setattr(printed_summary.sys.stdout, "isatty", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 40))
    return list(_in_lines(ROWS))


def test_given_a_file_then_every_value_has_one_line_and_none_ends_with_spaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = lines(monkeypatch, None)
    # "of the model" is the longest name, 12 characters, and 4 spaces follow.
    assert found == [f"  {name:<16}{value}" for name, value in ROWS.items()]
    assert all(line == line.rstrip() for line in found)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_given_a_terminal_then_values_wrap_beside_their_names(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    found = lines(monkeypatch, width)
    assert all(len(line) <= width for line in found if PATH not in line)
    assert found[0].startswith("  test error      2.22 % (round 17")
    assert any(line.endswith(PATH) for line in found)  # whole
    assert all(line.startswith(" " * 18) or line[2] != " " for line in found)
