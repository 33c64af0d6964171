"""Gin text with its digest in the first line, so that damage shows."""

import hashlib

_WORDS = "# SHA-256 of the lines below: "


def digested(text: str) -> bytes:
    """Returns the content of a file: the text below a comment with its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{_WORDS}{digest}\n{text}".encode()


def has_digest(data: bytes) -> bool:
    """Whether a file begins with a digest, be it a wrong one."""
    return data.startswith(_WORDS.encode())


def is_intact(data: bytes) -> bool:
    """Whether a file is, bit for bit, what `digested` returned."""
    first, _, text = data.partition(b"\n")
    return first == f"{_WORDS}{hashlib.sha256(text).hexdigest()}".encode()
