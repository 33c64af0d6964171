"""A model of a disk that loses its power: every state that a crash may leave.

A `Recorder` watches a folder while something is saved in it. After each call that
changes names or waits for the disk it notes what is durable and what only the cache
knows. POSIX promises of a cached folder and file this much alone:

    names      what was there at the last `fsync` of the folder, and any of the
               changes since, each whole or not at all (a rename is one change)
    contents   what was there at the last `fsync` of the file, or what was written
               since, or a part of it

`crashes` builds each of these states at each moment, as the ALICE study did with file
systems (Pillai et al., 2014, "All File Systems Are Not Created Equal").
"""

import contextlib
import copy
import hashlib
import itertools
import os
import pathlib
import threading

CALLS = ("fsync", "link", "mkdir", "rename", "replace", "rmdir", "unlink")
# Folders with more changes than this in the cache lose all, none, or one of them, or
# all that came after one.
MOST_CHANGES = 6


class _File:
    def __init__(self):
        self.synced, self.now = b"", b""

    def contents(self):
        if self.now == self.synced:
            return [self.now]
        return [self.synced, self.now[: len(self.now) // 2], self.now]


class _Folder:
    def __init__(self):
        self.synced, self.changes = {}, []

    def entries(self, kept=None):
        """Names and what they lead to, after those changes that were kept."""
        found = dict(self.synced)
        for number, change in enumerate(self.changes):
            if kept is None or number in kept:
                found.update(change)
        return {name: node for name, node in found.items() if node is not None}

    def choices(self):
        count = len(self.changes)
        if count <= MOST_CHANGES:
            sizes = range(count + 1)
            return [
                set(kept)
                for size in sizes
                for kept in itertools.combinations(range(count), size)
            ]
        firsts = [set(range(end)) for end in range(count + 1)]
        return firsts + [set(range(count)) - {lost} for lost in range(count)]


class Recorder:
    """What of a folder is on the disk, call by call.

    Attributes:
        moments: of each the model of the folder and what was acknowledged by then.
    """

    def __init__(self, root):
        self._root, self._lock = pathlib.Path(root), threading.RLock()
        self._nodes, self._ids, self._acknowledged = {0: _Folder()}, {}, None
        self.moments = []

    @contextlib.contextmanager
    def watching(self, monkeypatch):
        """Records the calls of a block; what is there before is on the disk."""
        with self._lock:
            self._observe()
            for node in self._nodes.values():
                self._flush(node)
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._wrapped(getattr(os, name), name))
            yield self

    def acknowledge(self, value):
        """Notes that a caller was told that `value` is saved."""
        with self._lock:
            self._acknowledged = value
            self._note()

    def _wrapped(self, function, name):
        def call(*args, **kwargs):
            with self._lock:
                self._observe()
                result = function(*args, **kwargs)
                self._observe()
                if name == "fsync":
                    node = self._ids.get(_identity(os.fstat(args[0])))
                    if node is not None:
                        self._flush(self._nodes[node])
                self._note()
            return result

        return call

    def _note(self):
        self.moments.append((copy.deepcopy(self._nodes), self._acknowledged))

    @staticmethod
    def _flush(node):
        if isinstance(node, _Folder):
            node.synced, node.changes = node.entries(), []
        else:
            node.synced = node.now

    def _observe(self):
        """Takes over what changed, by whomever: names first, then contents."""
        found = {}
        for path, status in _walk(self._root):
            found.setdefault(_identity(status), []).append((path, status))
        self._ids = {key: node for key, node in self._ids.items() if key in found}
        root = _identity(self._root.stat())
        self._ids[root] = 0
        for key, places in found.items():
            if key not in self._ids:
                is_folder = places[0][0].is_dir()
                self._ids[key] = len(self._nodes)
                self._nodes[len(self._nodes)] = _Folder() if is_folder else _File()
        folders = [self._root, *(path for path, _ in _walk(self._root))]
        for path in folders:
            node = self._nodes[self._ids[_identity(path.stat())]]
            if isinstance(node, _Folder):
                self._compare_names(node, path)
            else:
                node.now = path.read_bytes()

    def _compare_names(self, folder, path):
        known = folder.entries()
        there = {x.name: self._ids[_identity(x.stat())] for x in path.iterdir()}
        new = {name: node for name, node in there.items() if known.get(name) != node}
        gone = {name: node for name, node in known.items() if name not in there}
        for name, node in new.items():
            change = {name: node}
            # The same thing under another name: a rename, which is one change.
            moved = [old for old, other in gone.items() if other == node]
            for old in moved:
                change[old] = None
                del gone[old]
            folder.changes.append(change)
        folder.changes += [{name: None} for name in gone]


def _walk(root):
    for path in sorted(root.rglob("*")):
        yield path, path.stat()


def _identity(status):
    return status.st_dev, status.st_ino


def crashes(recorder):
    """Yields `(tree, acknowledged)` of every state that a crash may leave, once each.

    A tree is a dictionary of names; files are bytes.
    """
    seen = set()
    for nodes, acknowledged in recorder.moments:
        for tree in _trees(nodes, 0):
            key = _digest(tree), acknowledged
            if key not in seen:
                seen.add(key)
                yield tree, acknowledged


def _trees(nodes, number):
    node = nodes[number]
    if isinstance(node, _File):
        return node.contents()
    found = {}
    for kept in node.choices():
        entries = node.entries(kept)
        # Parts that may be lost in several ways are lost one at a time, or all alike.
        inner = {name: _trees(nodes, child) for name, child in entries.items()}
        most = max([len(trees) for trees in inner.values()], default=1)
        alike = [
            {name: trees[min(i, len(trees) - 1)] for name, trees in inner.items()}
            for i in range(most)
        ]
        single = [
            {**{key: trees[-1] for key, trees in inner.items()}, name: tree}
            for name, choices in inner.items()
            for tree in choices
        ]
        for tree in alike + single:
            found.setdefault(_digest(tree), tree)
    return list(found.values())


def _digest(tree):
    if isinstance(tree, bytes):
        return hashlib.sha256(tree).hexdigest()
    return repr([(name, _digest(part)) for name, part in sorted(tree.items())])


def build(tree, path):
    """Makes files and folders of a tree that `crashes` yielded."""
    path.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            build(content, path / name)
        else:
            (path / name).write_bytes(content)
