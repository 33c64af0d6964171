"""The WikiText sets as columns of word indices."""

import collections
import contextlib
import io
import os
import pathlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TextIO

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.datasets import _batches

_UNKNOWN = "<unk>"
_PARTS = ("train", "valid", "test")
_MOST_BYTES = 1 << 30
# The longest paragraph has some 20,000.
_MOST_CHARACTERS = 1 << 20
_DROPPED = re.compile('"')
_SPACES = re.compile("[;:]|<br />")
_ALONE = re.compile(r"([.,()!?'])")


class _Source(NamedTuple):
    """The name of a published text, and the digest of its archive."""

    name: str
    md5: str


_URL = "https://wikitext.smerity.com/"
_WIKITEXT2 = _Source("wikitext-2", "542ccefacc6c27f945fb54453812b3cd")
_WIKITEXT103 = _Source("wikitext-103", "9ddaacaf6af0710eda8c456decff7832")


class Vocabulary:
    """Words and their numbers: the most frequent one has the least number.

    Number 0 is `"<unk>"` and stands for every unknown word; words of the same frequency
    are in alphabetical order.

    Args:
        words: the words to count.
        max_size: how many numbers there may be, 0 included; None for all words.

    Attributes:
        words: the words by their numbers, a tuple.

    Raises:
        TypeError: if `max_size` is no int.
        ValueError: if `max_size` is not positive.

    Example:
        >>> vocabulary = Vocabulary("to be or not to be".split(), max_size=3)
        >>> vocabulary.words, vocabulary["to"], vocabulary["not"]
        (('<unk>', 'be', 'to'), 2, 0)
        >>> vocabulary.numbers(["be", "what"]).tolist()
        [1, 0]
    """

    def __init__(self, words: Iterable[str], max_size: int | None = None) -> None:
        if max_size is not None:
            checks.check_whole_number("Vocabulary", "max_size", max_size, low=1)
        counts = collections.Counter(words)
        del counts[_UNKNOWN]
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        self.words = (_UNKNOWN, *ordered)[:max_size]
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def __getitem__(self, word: str) -> int:
        return self._numbers.get(word, 0)

    def numbers(self, words: Iterable[str]) -> np.ndarray:
        """Returns the numbers of words, int64."""
        known = self._numbers
        return np.fromiter((known.get(word, 0) for word in words), np.int64)


def load_wikitext2(
    train_bs: int, test_bs: int, *, path: str | os.PathLike[str] | None = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Vocabulary]:
    """Returns the articles of WikiText-2 as columns of numbered words.

    Words are in small letters, with marks of punctuation as words of their own. The
    words of a part, one after the other, are cut into as many columns of one length
    as its batch size says; what is left over is dropped. Row t + 1 is what follows
    row t, so that `data[t:t + n]` and `data[t + 1:t + n + 1]` are a batch and its
    targets, and `tf.data.Dataset.from_tensor_slices(data).batch(n + 1)` reads on.

    Args:
        train_bs: columns of the part to learn from.
        test_bs: columns of the other two.
        path: the `.zip` file of the set, or a folder of `wiki.train.tokens`,
            `wiki.valid.tokens` and `wiki.test.tokens`; None downloads the former into
            Keras' cache.

    Returns:
        Training, validation and test data, int64 `[T, columns]`, and the `Vocabulary`
        of the training words.

    Raises:
        ConnectionError: if the set cannot be downloaded.
        TypeError: if a number is no int.
        ValueError: if a number is not positive, a part is too short for its columns,
            or a file is not what it should be.

    Example:
        >>> train, valid, test, words = load_wikitext2(20, 10)  # doctest: +SKIP
        >>> train.shape[1], words.words[0]  # doctest: +SKIP
        (20, '<unk>')

    References:
        Merity et al., "Pointer sentinel mixture models", 2016.
    """
    return _load("load_wikitext2", _WIKITEXT2, train_bs, test_bs, path, None)


def load_wikitext103(
    train_bs: int,
    test_bs: int,
    max_vocab_size: int = 32768,
    *,
    path: str | os.PathLike[str] | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Vocabulary]:
    """Returns the articles of WikiText-103 as columns of numbered words.

    Fifty times as many words as `load_wikitext2`, which says how they are numbered.

    Args:
        train_bs: columns of the part to learn from.
        test_bs: columns of the other two.
        max_vocab_size: how many numbers there may be; rarer words are 0.
        path: as for `load_wikitext2`.

    Returns:
        Training, validation and test data, int64 `[T, columns]`, and the `Vocabulary`
        of the training words.

    Raises:
        ConnectionError: if the set cannot be downloaded.
        TypeError: if a number is no int.
        ValueError: as `load_wikitext2`, or if `max_vocab_size` is not positive.

    Example:
        >>> train, valid, test, words = load_wikitext103(20, 10)  # doctest: +SKIP
        >>> len(words)  # doctest: +SKIP
        32768

    References:
        Merity et al., "Pointer sentinel mixture models", 2016.
    """
    where = "load_wikitext103"
    checks.check_whole_number(where, "max_vocab_size", max_vocab_size, low=1)
    return _load(where, _WIKITEXT103, train_bs, test_bs, path, max_vocab_size)


def _load(
    where: str,
    source: _Source,
    train_bs: int,
    test_bs: int,
    path: str | os.PathLike[str] | None,
    max_size: int | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Vocabulary]:
    _batches.check(where, train_bs, test_bs)
    if path is None:
        path = _batches.fetched(where, source.name, lambda: _downloaded(source))
    file = _batches.existing(where, path)
    vocabulary = Vocabulary(_words(where, source, file, "train"), max_size)
    columns = (train_bs, test_bs, test_bs)
    train, valid, test = (
        _columns(where, part, vocabulary.numbers(_words(where, source, file, part)), n)
        for part, n in zip(_PARTS, columns, strict=True)
    )
    return train, valid, test, vocabulary


def _downloaded(source: _Source) -> str:
    file = f"{source.name}-v1.zip"
    digest = {"file_hash": source.md5, "hash_algorithm": "md5"}
    return keras.utils.get_file(file, _URL + file, **digest)


def _words(where: str, source: _Source, path: pathlib.Path, part: str) -> Iterator[str]:
    try:
        with _opened(source, path, f"wiki.{part}.tokens") as lines:
            while line := lines.readline(_MOST_CHARACTERS):
                if len(line) == _MOST_CHARACTERS:
                    raise ValueError(f"a line of {_MOST_CHARACTERS} characters")
                text = _SPACES.sub(" ", _DROPPED.sub("", line.lower()))
                yield from _ALONE.sub(r" \1 ", text).split()
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        raise ValueError(
            f"`{where}`: `path` {str(path)!r} expected the .zip of {source.name} or a "
            f"folder with wiki.{part}.tokens in UTF-8; got {type(error).__name__}: "
            f"{error}; get the set anew"
        ) from error


@contextlib.contextmanager
def _opened(source: _Source, path: pathlib.Path, name: str) -> Iterator[TextIO]:
    if path.is_dir():
        if not (path / name).is_file():
            raise FileNotFoundError(f"no file {name}")
        with (path / name).open(encoding="utf-8") as lines:
            yield lines
        return
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{source.name}/{name}")
        if member.file_size > _MOST_BYTES:
            raise ValueError(f"{member.file_size} bytes of {member.filename}")
        with archive.open(member) as packed:
            yield io.TextIOWrapper(packed, encoding="utf-8")


def _columns(where: str, part: str, numbers: np.ndarray, n_columns: int) -> tf.Tensor:
    length = len(numbers) // n_columns
    if not length:
        raise ValueError(
            f"`{where}`: `{'train_bs' if part == 'train' else 'test_bs'}` expected at "
            f"most the {len(numbers)} words of {part}; got {n_columns}; choose fewer"
        )
    kept = numbers[: length * n_columns]
    return tf.constant(kept.reshape(n_columns, length).T)
