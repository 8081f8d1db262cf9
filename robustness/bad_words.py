"""Parts of inputs that no command can use."""

from __future__ import annotations

LONG = "x" * 5000
UNICODE = "ünï\u202ecödé\U0001f9e8"
SURROGATE = "caf\udce9"  # a byte that is not UTF-8


def texts(text: str) -> list[str]:
    """The parts of ``text`` between `` | ``, which may begin a line, and names in braces filled."""
    known = {"LONG": LONG, "UNICODE": UNICODE, "SURROGATE": SURROGATE, "DIGITS": "9" * 5000}
    parts = " ".join(line.strip() for line in text.strip().splitlines()).split(" | ")
    return [part.format(EMPTY="", **known) for part in parts]


def check(node: str, run_config: str = "method='fedul'") -> list[str]:
    shape = ("--class-names", "sound,ill", "--input-shape", "8x8x1")
    return ["deploy", "check", "--node-config", node, "-c", f"model='mlp' {run_config}", *shape]
