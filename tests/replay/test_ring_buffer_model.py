"""Buffers against plain deques, through random sequences of calls."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings, stateful
from hypothesis import strategies as st

from tfrl import replay

SPEC = {"x": tf.TensorSpec([2], tf.float32), "t": tf.TensorSpec([], tf.int64)}
ENVIRONMENTS, LENGTH, CAPACITY = 3, 4, 5
DEVICES = {"host": ("cpu", 25), "variables": ("/CPU:1", 4)}
subsets = st.permutations(range(ENVIRONMENTS)).flatmap(
    lambda ids: st.integers(1, ENVIRONMENTS).map(lambda n: ids[:n])
)
some_ids = st.none() | subsets


def rows(numbers):
    numbers = np.asarray(numbers, np.int64)
    x = np.stack([numbers, -numbers], axis=-1).astype(np.float32)
    return {"x": x, "t": numbers}


def assert_rows(found, numbers):
    tf.nest.map_structure(np.testing.assert_array_equal, found, rows(numbers))


class RingMachine(stateful.RuleBasedStateMachine):
    device = "cpu"

    def __init__(self):
        super().__init__()
        self.buffer = replay.RingBuffer(SPEC, ENVIRONMENTS, LENGTH, device=self.device)
        self.model = [collections.deque(maxlen=LENGTH) for _ in range(ENVIRONMENTS)]
        self.positions = [0] * ENVIRONMENTS
        self.written = 0

    def ids(self, env_ids):
        return range(ENVIRONMENTS) if env_ids is None else env_ids

    def least(self, env_ids):
        return min(len(self.model[env]) for env in self.ids(env_ids))

    @stateful.rule(env_ids=some_ids)
    def enqueue(self, env_ids):
        ids = self.ids(env_ids)
        numbers = range(self.written, self.written + len(ids))
        self.written += len(ids)
        assert self.buffer.enqueue(rows(numbers), env_ids) is True
        for env, number in zip(ids, numbers, strict=True):
            self.model[env].append(number)
            self.positions[env] += 1

    @stateful.rule(env_ids=some_ids, n=st.integers(1, LENGTH))
    def dequeue(self, env_ids, n):
        if self.least(env_ids) < n:
            with pytest.raises(ValueError, match=f"expected sizes of at least {n}"):
                self.buffer.dequeue(env_ids, n)
            return
        found = self.buffer.dequeue(env_ids, n)
        taken = [
            [self.model[env].popleft() for _ in range(n)] for env in self.ids(env_ids)
        ]
        assert_rows(found, taken)

    @stateful.rule(env_ids=some_ids)
    def clear(self, env_ids):
        self.buffer.clear(env_ids)
        for env in self.ids(env_ids):
            self.model[env].clear()
            self.positions[env] = 0

    @stateful.rule(env_ids=some_ids, n=st.integers(0, LENGTH + 1))
    def remove_up_to(self, env_ids, n):
        self.buffer.remove_up_to(n, env_ids)
        for env in self.ids(env_ids):
            for _ in range(min(n, len(self.model[env]))):
                self.model[env].popleft()

    @stateful.rule(env_ids=subsets, n=st.integers(1, LENGTH))
    def ask(self, env_ids, n):
        assert bool(self.buffer.has_data(env_ids, n)) == (self.least(env_ids) >= n)
        longest = max(len(self.model[env]) for env in env_ids)
        assert bool(self.buffer.has_space(env_ids)) == (longest < LENGTH)

    @stateful.rule(data=st.data())
    def read(self, data):
        filled = [env for env in range(ENVIRONMENTS) if self.model[env]]
        if not filled:
            return
        env_ids = data.draw(st.lists(st.sampled_from(filled), min_size=1, max_size=5))
        ages = [data.draw(st.integers(0, len(self.model[env]) - 1)) for env in env_ids]
        earliest = np.asarray(self.buffer.get_earliest_position(env_ids))
        found = self.buffer.get(env_ids, earliest + ages)
        pairs = zip(env_ids, ages, strict=True)
        assert_rows(found, [self.model[env][age] for env, age in pairs])

    @stateful.invariant()
    def counts_agree(self):
        sizes = [len(steps) for steps in self.model]
        np.testing.assert_array_equal(self.buffer.current_size, sizes)
        np.testing.assert_array_equal(
            self.buffer.get_current_position(), self.positions
        )


class DataMachine(stateful.RuleBasedStateMachine):
    device = "cpu"

    def __init__(self):
        super().__init__()
        self.buffer = replay.DataBuffer(SPEC, CAPACITY, device=self.device, seed=0)
        self.model = collections.deque(maxlen=CAPACITY)
        self.position = self.written = 0

    @stateful.rule(count=st.integers(0, CAPACITY + 3))
    def add_batch(self, count):
        numbers = range(self.written, self.written + count)
        self.written += count
        self.buffer.add_batch(rows(numbers))
        self.model.extend(numbers)
        self.position += min(count, CAPACITY)

    @stateful.rule(n=st.integers(0, CAPACITY))
    def remove_up_to(self, n):
        self.buffer.remove_up_to(n)
        for _ in range(min(n, len(self.model))):
            self.model.popleft()

    @stateful.rule(batch_size=st.integers(1, 7))
    def get_batch(self, batch_size):
        if not self.model:
            with pytest.raises(ValueError, match="expected a buffer that holds rows"):
                self.buffer.get_batch(batch_size)
            return
        found = self.buffer.get_batch(batch_size)
        numbers = np.asarray(found["t"])
        assert numbers.shape == (batch_size,)
        assert set(numbers.tolist()) <= set(self.model)
        assert_rows(found, numbers)

    @stateful.rule(indices=st.lists(st.integers(-CAPACITY, CAPACITY), max_size=4))
    def get_batch_by_indices(self, indices):
        ages = indices
        if len(self.model) == CAPACITY:
            ages = [index % CAPACITY for index in indices]
        if any(not 0 <= age < len(self.model) for age in ages):
            with pytest.raises(ValueError, match="less than the current size"):
                self.buffer.get_batch_by_indices(indices)
            return
        found = self.buffer.get_batch_by_indices(indices)
        assert_rows(found, [self.model[age] for age in ages])

    @stateful.rule()
    def clear(self):
        self.buffer.clear()
        self.model.clear()
        self.position = 0

    @stateful.invariant()
    def contents_agree(self):
        assert int(self.buffer.current_size) == len(self.model)
        assert int(self.buffer.current_pos) == self.position
        assert bool(self.buffer.is_full()) == (len(self.model) == CAPACITY)
        assert_rows(self.buffer.get_all(), list(self.model))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [RingMachine, DataMachine])
@pytest.mark.parametrize("place", DEVICES)
def test_buffer_is_its_model(machine, place):
    device, examples = DEVICES[place]
    on_device = type(machine.__name__, (machine,), {"device": device})
    stateful.run_state_machine_as_test(
        on_device,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, database=None
        ),
    )
