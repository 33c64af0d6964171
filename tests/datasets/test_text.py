"""Tests of `tfrl.datasets.text`."""

import collections
import os
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.datasets import text

TEXTS = {
    "train": ' \n = Robert = \n \n Robert , "Bob" , is an <unk> . \n'
    " It's ( not ) bob ! \n",
    "valid": " \n Bob is Robert ; is he? \n",
    "test": " \n not: Robert.Bob <br /> is\n",
}
# What the tokenizer of the field makes of them.
WORDS = {
    "train": "= robert = robert , bob , is an <unk> . it ' s ( not ) bob !".split(),
    "valid": "bob is robert is he ?".split(),
    "test": "not robert . bob is".split(),
}
# By frequency, then by alphabet; <unk> first.
ORDERED = ["<unk>"] + sorted(
    set(WORDS["train"]) - {"<unk>"}, key=lambda w: (-WORDS["train"].count(w), w)
)


def write_folder(folder, texts=TEXTS):
    folder.mkdir(exist_ok=True)
    for part, content in texts.items():
        (folder / f"wiki.{part}.tokens").write_text(content, encoding="utf-8")
    return folder


def write_zip(path, name="wikitext-2", texts=TEXTS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in texts.items():
            archive.writestr(f"{name}/wiki.{part}.tokens", content)
    return path


def read_columns(data, vocabulary):
    """The words of columns, one column after the other."""
    return [vocabulary.words[number] for number in np.ravel(data.numpy().T)]


def as_known(words, vocabulary):
    return [word if word in vocabulary else "<unk>" for word in words]


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("name", ["wikitext-2", "wikitext-103"])
def test_words_of_a_set(tmp_path, form, name):
    path = tmp_path / "set"
    write_folder(path) if form == "folder" else write_zip(path, name)
    load = text.load_wikitext2 if name == "wikitext-2" else text.load_wikitext103
    train, valid, test, vocabulary = load(4, 2, path=path)
    assert list(vocabulary.words) == ORDERED and len(vocabulary) == len(ORDERED)
    assert [data.shape for data in (train, valid, test)] == [(4, 4), (3, 2), (2, 2)]
    assert all(data.dtype == tf.int64 for data in (train, valid, test))
    kept = {"train": 16, "valid": 6, "test": 4}
    for (part, n), data in zip(kept.items(), (train, valid, test), strict=True):
        expected = as_known(WORDS[part][:n], vocabulary)
        assert read_columns(data, vocabulary) == expected


def test_rare_words_are_unknown(tmp_path):
    path = write_folder(tmp_path / "set")
    train, *_, vocabulary = text.load_wikitext103(1, 1, max_vocab_size=3, path=path)
    assert vocabulary.words == ("<unk>", *ORDERED[1:3])
    assert read_columns(train, vocabulary) == as_known(WORDS["train"], vocabulary)


def test_rows_follow_each_other(tmp_path):
    path = write_folder(tmp_path / "set")
    train, *_, vocabulary = text.load_wikitext2(2, 1, path=path)
    batches = tf.data.Dataset.from_tensor_slices(train).batch(5)
    first = next(iter(batches))
    np.testing.assert_array_equal(first, train[:5])
    numbers = vocabulary.numbers(WORDS["train"])
    np.testing.assert_array_equal(train[:, 1], numbers[9:18])


def test_vocabulary_is_that_of_counting():
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in rng.geometric(0.2, 500)] + ["<unk>"] * 100
    vocabulary = text.Vocabulary(iter(words))
    counts = collections.Counter(words)
    assert set(vocabulary.words) == set(words)
    pairs = zip(vocabulary.words[1:], vocabulary.words[2:], strict=False)
    assert all((-counts[a], a) < (-counts[b], b) for a, b in pairs)
    assert [vocabulary[word] for word in vocabulary.words] == list(
        range(len(vocabulary))
    )
    assert vocabulary["never"] == 0 and "never" not in vocabulary
    numbers = vocabulary.numbers(words)
    assert numbers.dtype == np.int64
    assert [vocabulary.words[number] for number in numbers] == words


def test_empty_vocabulary():
    assert text.Vocabulary([]).words == text.Vocabulary(["a"], 1).words == ("<unk>",)
    with pytest.raises(ValueError, match="`max_size` expected an int of at least 1"):
        text.Vocabulary([], 0)


def test_downloads(monkeypatch, tmp_path):
    asked = []

    def get_file(fname, origin, **kwargs):
        asked.append((fname, origin, kwargs))
        return str(write_zip(tmp_path / fname, fname.removesuffix("-v1.zip")))

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    assert text.load_wikitext2(2, 2)[0].shape == (9, 2)
    assert text.load_wikitext103(2, 2)[0].shape == (9, 2)
    names = [fname for fname, *_ in asked]
    assert names == ["wikitext-2-v1.zip", "wikitext-103-v1.zip"]
    for fname, origin, kwargs in asked:  # what comes is held against a digest
        assert origin.startswith("https://") and origin.endswith(f"/{fname}")
        assert kwargs["hash_algorithm"] == "md5" and len(kwargs["file_hash"]) == 32


@pytest.mark.parametrize("load", [text.load_wikitext2, text.load_wikitext103])
def test_no_connection(monkeypatch, load):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on https://...: unreachable")

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    with pytest.raises(ConnectionError, match="download it; .*unreachable; .* `path`"):
        load(2, 2)


def damaged(path):
    write_zip(path)
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])


def foreign(path):
    write_folder(path)
    (path / "wiki.valid.tokens").write_bytes(b"\xff\xfe\xfa")


def incomplete(path):
    write_folder(path)
    (path / "wiki.test.tokens").unlink()


def swollen(path):
    write_zip(path)
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")  # the last entry of the directory, that of "test"
    data = data[: at + 24] + (2**31).to_bytes(4, "little") + data[at + 28 :]
    path.write_bytes(data)


def one_line(path):
    write_folder(path)
    (path / "wiki.valid.tokens").write_text("a " * 2**20)


def a_pipe(path):
    write_folder(path)
    (path / "wiki.train.tokens").unlink()
    os.mkfifo(path / "wiki.train.tokens")


def damaged_lzma(path):
    text = "some words " * 1000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("wikitext-2/wiki.train.tokens", text)
    data = path.read_bytes()
    path.write_bytes(data[:70] + bytes(30) + data[100:])


def no_zip(path):
    path.write_bytes(b"PK")


def other_folder(path):
    write_zip(path, "../wikitext-2")


@pytest.mark.parametrize(
    ("write", "part"),
    [
        (one_line, "valid"),
        (a_pipe, "train"),
        (damaged_lzma, "train"),
        (no_zip, "train"),
        (other_folder, "train"),
        (damaged, "train"),
        (foreign, "valid"),
        (incomplete, "test"),
        (swollen, "test"),
    ],
)
def test_refused_files(tmp_path, write, part):
    path = tmp_path / "set"
    write(path)
    with pytest.raises(ValueError, match=rf"set' expected .*wiki\.{part}\.tok"):
        text.load_wikitext2(2, 2, path=path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "`train_bs` expected an int of at least 1"),
        ((1, 0), "`test_bs` expected an int of at least 1"),
        ((20, 1), "`train_bs` expected at most the 19 words of train; got 20"),
        ((1, 7), "`test_bs` expected at most the 6 words of valid; got 7"),
    ],
    ids=["no_columns", "no_test_columns", "many_columns", "many_test_columns"],
)
def test_bad_columns(tmp_path, arguments, message):
    path = write_folder(tmp_path / "set")
    with pytest.raises(ValueError, match=f"`load_wikitext2`: {message}"):
        text.load_wikitext2(*arguments, path=path)


def test_bad_sizes_and_paths(tmp_path):
    with pytest.raises(ValueError, match="`max_vocab_size` expected an int of at"):
        text.load_wikitext103(1, 1, 0)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nowhere", tmp_path / "pipe"):
        with pytest.raises(ValueError, match="expected a file or folder that exists"):
            text.load_wikitext2(1, 1, path=path)
