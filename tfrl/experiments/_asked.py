"""Compares what several seeds are resumed with to what their record says."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfrl.experiments import _digests, _seed_process

_Seeds = Sequence[_seed_process.SeedProcess]


class Asked(NamedTuple):
    """What runs go on with, and begin with.

    Attributes:
        again: arguments to go on with.
        anew: those to begin with.
        files: digests of the configurations among them, with what these include.
        before: the record so far, which stays until a run has begun with the new ones.
        differs: whether they may say something else than those of before.
    """

    again: Sequence[str]
    anew: Sequence[str]
    files: Mapping[str, str | None]
    before: Mapping[str, Any]
    differs: bool

    def record(self, seeds: _Seeds, left: _Seeds, done: _Seeds) -> dict[str, Any]:
        """What is known of all seeds.

        Args:
            seeds: all of them.
            left: those that this is given to.
            done: those that were done before, and are so unless others go on.
        """
        has_begun = any(each.has_begun for each in seeds)
        known = {
            str(x.seed): {
                "status": x.status,
                "exit": x.exit,
                "cpu_seconds": round(x.cpu_seconds, 2),
            }
            for x in seeds
        }
        before = self.before
        if not has_begun:
            known |= {str(x.seed): before["seeds"][str(x.seed)] for x in done}
        files = self.files if has_begun else before.get("files", self.files)
        # Those that are yet to go on with what is recorded as `train`.
        changed = [x.seed for x in left if self.differs and has_begun]
        behind = {*before.get("behind", ()), *changed}
        return {
            "train": [*(self.anew if has_begun else before["train"])],
            "files": {**files},
            "behind": [x.seed for x in left if x.seed in behind and not x.has_begun],
            "seeds": known,
        }


def asked(train: Sequence[str], before: Mapping[str, Any], seeds: _Seeds) -> Asked:
    """What `train` asks for, beside what was recorded."""
    again, anew = [*train], [each for each in train if each != "--override"]
    names_none = all(each.startswith("--") for each in anew)
    if names_none and before["seeds"]:  # of the configuration before
        anew = [*before["train"], *anew]
    files = {each: _digests.digest(each) for each in anew if not each.startswith("--")}
    # Who names no configuration, and begins no run, needs none.
    is_read = not (names_none and all(each.is_saved for each in seeds))
    known = before.get("files", files)
    is_edited = is_read and not (
        known.keys() == files.keys()
        and all(_digests.is_alike(each, known[each]) for each in files)
    )
    if names_none and before["seeds"] and (before.get("behind") or is_edited):
        again = [*before["train"], *again]
    differs = is_edited or _settings(anew) != _settings(before["train"])
    return Asked(again, anew, files, before, differs)


def _settings(train: Sequence[str]) -> dict[str, str]:
    """What arguments say, in whatever order; what changes no run is left out."""
    found = {"": " ".join(each for each in train if not each.startswith("--"))}
    for each in train:
        name, _, value = each.removeprefix("--config=").partition("=")
        if each.startswith("--") and name not in ("--override", "--log_level"):
            found[name.strip()] = value.strip()
    return found
