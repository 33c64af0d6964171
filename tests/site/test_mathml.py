"""Formulas of the site have the spaces that TeX sets."""

import pathlib
import re
import sys

EXTENSIONS = pathlib.Path(__file__).parents[2] / "tools" / "site" / "extensions"
sys.path.insert(0, str(EXTENSIONS))
import mathml  # noqa: E402


def spaces(latex):
    """Names of functions with the spaces at both sides of them."""
    found = r'<mo lspace="(\S+)em" rspace="(\S+)em">(\w+)</mo>'
    return [
        (name, float(left), float(right))
        for left, right, name in re.findall(found, mathml.convert(latex))
    ]


def test_functions_stand_apart_from_letters_alone():
    assert spaces(r"\alpha \log \pi") == [("log", 0.167, 0.167)]
    assert spaces(r"\log(x)") == [("log", 0.0, 0.0)]
    assert spaces(r"w (\exp(x) + 2 \tanh y)") == [
        ("exp", 0.0, 0.0),
        ("tanh", 0.167, 0.167),
    ]


def test_drawn_from_is_a_relation():
    assert "<mo>&#x0223C;</mo>" in mathml.convert(r"a \sim \pi")
    assert 'display="block"' in mathml.convert("x", display="block")
