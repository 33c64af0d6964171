"""The notebooks of the repository, and what cells of them hold."""

import base64
import pathlib
import re

import nbformat

COLABS = pathlib.Path(__file__).parents[1] / "colabs"
NOTEBOOKS = sorted(COLABS.glob("*.ipynb"))


def texts(notebook, cell_type):
    return [cell.source for cell in notebook.cells if cell.cell_type == cell_type]


def printed(cells):
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if "text" in output)


def pictures(cells):
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    data = [output.data for output in outputs if "data" in output]
    return [base64.b64decode(each["image/png"]) for each in data if "image/png" in each]


def with_parameters(notebook, **values):
    """Inserts a cell of new values after the one tagged `parameters`."""
    (place,) = [
        place
        for place, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", ())
    ]
    source = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    names = set(re.findall(r"^(\w+) =", notebook.cells[place].source, re.M))
    assert set(values) <= names
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(source))
    return notebook
