"""Renders formulas as MathML when the site is built: readers need no script or font."""

import re

from docutils import nodes
from latex2mathml import converter

_FUNCTION = re.compile("<mi>(cos|exp|log|tanh)</mi>")
_OPENED = '<mo stretchy="false">&#x00028;'


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}


def convert(latex: str, display: str = "inline") -> str:
    """MathML of a formula, with the spaces around functions and ~ that TeX sets."""
    formula = converter.convert(latex, display=display)
    formula = formula.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    return _FUNCTION.sub(_spaced, formula)


def _spaced(found: re.Match[str]) -> str:
    before, after = found.string[: found.start()], found.string[found.end() :]
    left = 0 if before.endswith(("<mrow>", f"{_OPENED}</mo>")) else 0.167
    right = 0 if after.startswith(_OPENED) else 0.167
    return f'<mo lspace="{left}em" rspace="{right}em">{found[1]}</mo>'


def _inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator, node):
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>\n')
    raise nodes.SkipNode
