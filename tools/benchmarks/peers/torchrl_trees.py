"""torchrl's C++ trees, for its prioritised buffer and for a benchmark of their own.

Its wheels fit one version of torch and know it only by failing to load beside another.
They carry the sources, so the trees are built from these, once, where a compiler is.
"""

import pathlib
import sys


def load():
    """The module `torchrl._torchrl`; import it before anything else of torchrl.

    Raises ImportError where it can neither be loaded nor built.
    """
    import torch  # noqa: PLC0415
    import torchrl  # noqa: PLC0415

    try:
        from torchrl import _torchrl  # noqa: PLC0415
    except ImportError:
        _torchrl = sys.modules["torchrl._torchrl"] = torchrl._torchrl = _built(
            pathlib.Path(torchrl.__file__).parent / "csrc",
            f"torchrl-{torchrl.__version__}-torch-{torch.__version__}",
        )
    return _torchrl


def _built(sources, name):
    from torch.utils import cpp_extension  # noqa: PLC0415

    folder = pathlib.Path(sys.prefix) / name
    if not folder.exists():
        print("building torchrl's trees (a minute)", file=sys.stderr)
    folder.mkdir(exist_ok=True)
    try:
        return cpp_extension.load(
            "_torchrl",
            [str(sources / "pybind.cpp"), str(sources / "utils.cpp")],
            build_directory=str(folder),
            extra_cflags=["-O3", "-DNDEBUG"],
        )
    except (OSError, RuntimeError) as error:  # no compiler, or no ninja
        raise ImportError(f"torchrl's trees cannot be built: {error}") from error
