"""Extreme points: parameters of all sizes with values near and far, as flat arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

Points = dict[str, np.ndarray]

DEVIATIONS = np.array([1e-3, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 12.0, 40.0])
SHARES = np.array([1e-12, 1e-6, 1e-3, 0.03, 0.3])
OPTIONS = 4


def sizes(dtype: str) -> np.ndarray:
    """Positive numbers, all but the very last that products with others need."""
    if dtype == "float32":
        return np.float32([1e-33, 1e-25, 1e-12, 1e-4, 0.1, 1, 3, 1e3, 1e8, 1e20, 1e33])
    return np.array([1e-298, 1e-160, 1e-60, 1e-8, 0.1, 1, 3, 1e3, 1e16, 1e150, 1e298])


def signed(dtype: str) -> np.ndarray:
    positive = sizes(dtype)
    return np.concatenate([-positive, positive[:1] * 0, positive])


def signed_but_zero(dtype: str) -> np.ndarray:
    return np.delete(signed(dtype), len(sizes(dtype)))


def crossed(dtype: str, **axes: Any) -> Points:
    """All combinations."""
    grids = np.meshgrid(*axes.values(), indexing="ij")
    return {k: g.ravel().astype(dtype) for k, g in zip(axes, grids, strict=True)}


def stacked(*parts: Points) -> Points:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def location_scale(dtype: str, scales: Callable[[str], Any] = sizes) -> Points:
    """Values of all sizes, and some scales away from the location."""
    grid = {"loc": signed(dtype), "scale": scales(dtype)}
    near = crossed(dtype, **grid, value=np.concatenate([-DEVIATIONS, DEVIATIONS]))
    near["value"] = near["loc"] + near["scale"] * near["value"]
    return stacked(crossed(dtype, **grid, value=signed(dtype)), near)


def concentrations(dtype: str) -> Points:
    eps = float(np.finfo(dtype).eps)
    around = np.array([1e-18, 1e-2, 0.5, 0.999, 1 - eps, 1 + eps, 2, 7.9, 8.1, 200])
    around = np.concatenate([sizes(dtype), around, [1e4, 1e6, 1e12, 1e30]])
    near_bounds = np.array([eps / 2, 4 * eps, 1e-4, 0.1])
    values = np.concatenate(
        [[1e-30, 1e-9, 1e-2, 0.3, 0.5], near_bounds, 1 - near_bounds]
    )
    grid = {"concentration1": around, "concentration0": around}
    mean = crossed(dtype, **grid, value=[0.5, 0.9, 1.0, 1.0 + 4 * eps])
    total = mean["concentration1"] + mean["concentration0"]
    mean["value"] = mean["value"] * (mean["concentration1"] / total)
    inside = (mean["value"] >= np.finfo(dtype).tiny) & (mean["value"] < 1)
    mean = {name: x[inside] for name, x in mean.items()}
    return stacked(crossed(dtype, **grid, value=values), mean)


def bounded(dtype: str, least: float, greatest: float) -> Points:
    """Values by their place between two bounds, or as distances from the only one."""
    tiny, eps = np.finfo(dtype).tiny, np.finfo(dtype).eps
    if np.isfinite(least) and np.isfinite(greatest):
        steps = np.concatenate([[0.0, eps], SHARES]) * (greatest - least)
        steps = np.append(steps, tiny)
        values = np.concatenate([least + steps, greatest - steps])
        values = np.append(values, 0.5 * least + 0.5 * greatest)
    else:
        steps = np.append(0.0, sizes(dtype)[1:-1])
        values = least + steps if np.isfinite(least) else greatest - steps
    values = np.clip(values.astype(dtype), least, greatest)
    locs = np.concatenate([signed(dtype), values[1:4]])
    return crossed(dtype, loc=locs, scale=sizes(dtype)[::2], value=np.unique(values))


def choices(dtype: str, n: int = 10_000) -> Points:
    """Logits of all sizes in all mixtures."""
    rng = np.random.default_rng(7)
    logits = rng.choice(signed(dtype), [n, OPTIONS])
    logits[::3] = rng.choice(logits[::3], axis=1, size=2)[:, [0, 1, 1, 0]]
    return {"logits": logits, "value": rng.integers(0, OPTIONS, n, dtype=np.int32)}


def masked_choices(dtype: str) -> Points:
    points = choices(dtype)
    n = len(points["value"])
    mask = np.random.default_rng(8).random([n, OPTIONS]) < 0.5
    mask[np.arange(n), points["value"]] = True
    return {**points, "mask": mask}


def one_hot_logits(dtype: str) -> Points:
    points = choices(dtype)
    return {**points, "value": np.eye(OPTIONS, dtype=dtype)[points["value"]]}


def one_hot_probs(dtype: str) -> Points:
    points = one_hot_logits(dtype)
    points["probs"] = np.abs(points.pop("logits"))
    # What is drawn has some.
    points["probs"] += sizes(dtype)[0] * points["value"]
    return points


def pairs(dtype: str) -> Points:
    """Of a normal and of a choice."""
    normal, choice = location_scale(dtype), masked_choices(dtype)
    normal = {name: x[:: len(x) // 10_000] for name, x in normal.items()}
    n = len(normal["value"])
    choice["option"] = choice.pop("value")
    return normal | {k: np.resize(x, [n, *x.shape[1:]]) for k, x in choice.items()}


def of_events(points: Callable[..., Points]) -> Callable[..., Points]:
    """The same points as events of one number."""
    return lambda dtype, **settings: {
        name: x[:, None] for name, x in points(dtype, **settings).items()
    }
