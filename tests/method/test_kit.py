"""The kit of methods is small, and its page has all of it."""

import re
from pathlib import Path

import fedul_flwr.method as kit


def test_each_name_is_on_the_page_and_each_name_of_the_page_is_there() -> None:
    names = {n for n in vars(kit) if not n.startswith("_")} - {"TYPE_CHECKING", "Any"} | {"Network"}
    page = Path("docs/api/method.md").read_text()
    cells = re.findall(r"^\| (`[^|]*`) \|", page, flags=re.M)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == names
    assert len(names) <= 60
