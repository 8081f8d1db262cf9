"""Who an error is about, and what a client says, as text that cannot mislead its reader.

The server names the client that it heard from itself, by the node that answered. A client's own
words are quoted after that name. Nothing from a client reaches a log, a file or a terminal before
:func:`printable`.
"""

from __future__ import annotations

import re

from flwr.app import Error, Message

MAX_CHARS = 300
"""Most characters of a text from a client; the rest is cut off."""

_SENDER = re.compile(r"\s*(?:(?:client|node)\s*#?\d+\s*(?:\([^)]*\)\s*)?:\s*)+", re.IGNORECASE)
"""A sender's name before a text, as in ``Client 2: …``: only the server says who has sent it."""
_FLOWER = "Exception ClientAppException occurred. Message: "
"""What Flower writes before a client's error."""


class UnreadableReplyError(Error):
    """The server's own error about a reply that it could not read; its text is no client's."""


def printable(text: str, longest: int = MAX_CHARS) -> str:
    """``text`` on one line: control characters escaped, and cut after ``longest`` characters."""
    # Cut first: a text of a gigabyte is not escaped whole.
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[: longest + 1]
    )
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def quote_client_text(text: str) -> str:
    """A client's words as a quote, without a sender's name at their beginning."""
    text = text[: 10 * MAX_CHARS]
    sender = _SENDER.match(text)
    bare = (text[sender.end() :] if sender else text).strip().removesuffix(".")
    return f'it says "{printable(bare).replace(chr(34), chr(39))}"'


def failure_reason(reply: Message, node: int) -> str:
    """Why ``node`` has not answered as it was asked, from an error reply to its message.

    The SuperLink reports some errors itself, about nodes that are gone; others are the client's.
    """
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = (lines[-1] if lines else "unknown error").replace(_FLOWER, "").removesuffix("'>")
    if isinstance(reply.error, UnreadableReplyError) or reply.metadata.src_node_id != node:
        return printable(text)
    return quote_client_text(text)


def client_label(kind: str, number: int, name: str = "") -> str:
    """``Client 3``, or ``Client 3 (st-mary)`` for an owner with a name."""
    return f"{kind} {number} ({printable(name, 64)})" if name else f"{kind} {number}"


def prefix_sender(sender: str, reason: str) -> str:
    """A sentence about ``sender``; a reason that begins with its number is not told twice."""
    number = sender.partition(" (")[0]
    for end in (":", " "):
        if reason.startswith(number + end):
            return sender + reason[len(number) :]
    return f"{sender}: {reason}"
