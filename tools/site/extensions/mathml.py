"""Renders formulas as MathML when the site is built: readers need no script or font."""

from docutils import nodes
from latex2mathml import converter


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}


def _inline(translator, node):
    translator.body.append(converter.convert(node.astext()))
    raise nodes.SkipNode


def _block(translator, node):
    formula = converter.convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>\n')
    raise nodes.SkipNode
