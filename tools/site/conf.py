"""How Sphinx builds the site of documentation; `tools/docs` calls it."""

import os
import pathlib
import sys

import ziamath
from pygments import lexers
from sphinx import application

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tfrl  # noqa: E402

project = "tfrl"
author = "the authors of tfrl"
project_copyright = author
version = release = tfrl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "mathml",
    "measured",
    "migrated",
    "reference_pages",
]
exclude_patterns = ["extensions", "static"]
# What is neither code of a language nor a session of Python is plain text.
highlight_language = "text"
# Code that a docstring breaks into two lines.
default_role = "literal"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_attr_annotations = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 68
python_use_unqualified_type_names = True
toc_object_entries = False

html_theme = "pydata_sphinx_theme"
html_title = "tfrl"
html_static_path = ["static", str(pathlib.Path(ziamath.__file__).parent / "fonts")]
html_css_files = ["tfrl.css"]
html_math_renderer = "mathml"
html_search_scorer = str(HERE / "static" / "search_scorer.js")
# Pages with nothing below them need no column for it.
html_sidebars = {
    page: []
    for page in ("index", "get_started", "benchmarks", "architecture", "changelog")
}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "tfrl"},
    "show_toc_level": 2,
    "navigation_depth": 3,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "icon_links": [
        {
            "name": "Source",
            "url": "https://github.com/tfrl/tfrl",
            "icon": "fa-brands fa-github",
        }
    ],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
# A click on >>> copies what one would type.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: application.Sphinx) -> None:
    """Reads configurations of gin as Python, which they nearly are."""
    app.add_lexer("gin", lexers.PythonLexer)
