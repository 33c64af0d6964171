"""Every distribution and bijector comes back whole from where it travels.

Through `tf.function`, apart into parameters and a `DistributionSpec`, a storage,
`tf.data`, and the replicas of a strategy.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from conformance import examples

from tfrl import distributions, replay

SEED = (1, 2)
EXAMPLES = {example.cls.__name__: example for example in examples.DISTRIBUTIONS}
BIJECTORS = {type(each).__name__: each for each in examples.BIJECTORS}
over_examples = pytest.mark.parametrize("name", EXAMPLES)
over_bijectors = pytest.mark.parametrize("name", BIJECTORS)
COMPONENTS = (tfp.distributions.Distribution, tfp.bijectors.Bijector)


def assert_same(got, wanted, except_for=()):
    """Equal arguments, down to those of components."""
    if isinstance(wanted, COMPONENTS):
        assert type(got) is type(wanted)
        got, wanted = got.parameters, wanted.parameters
    if isinstance(wanted, dict):
        assert set(got) == set(wanted)
        for key in set(wanted) - set(except_for):
            assert_same(got[key], wanted[key], except_for)
    elif hasattr(wanted, "dtype"):
        np.testing.assert_array_equal(got, wanted)
        assert tf.as_dtype(got.dtype) == tf.as_dtype(wanted.dtype)
    else:
        assert got == wanted


def assert_close(got, wanted):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, wanted
    )


@over_examples
def test_distributions_cross_functions(name):
    traces = []

    @tf.function
    def back(dist):
        traces.append(name)
        return dist

    for _ in range(2):
        dist = EXAMPLES[name]()
        # TensorFlow Probability counts the names in a graph.
        assert_same(back(dist), dist, except_for=["name"])
    assert len(traces) == 1


@over_bijectors
def test_bijectors_cross_functions(name):
    bijector = BIJECTORS[name]
    assert_same(tf.function(lambda x: x)(bijector), bijector, except_for=["name"])


@over_examples
def test_specs_keep_every_argument(name):
    dist = EXAMPLES[name]()
    spec = distributions.DistributionSpec.from_distribution(dist, from_dim=1)
    parameters = distributions.extract_distribution_parameters(dist)
    assert_same(spec.build_distribution(parameters), dist)
    again = distributions.DistributionSpec.from_distribution(EXAMPLES[name](), 1)
    assert spec == again


@over_bijectors
def test_specs_keep_every_argument_of_bijectors(name):
    bijector = BIJECTORS[name]
    base = tfp.distributions.MultivariateNormalDiag(tf.zeros([4, 2]))
    dist = tfp.distributions.TransformedDistribution(base, bijector)
    spec = distributions.DistributionSpec.from_distribution(dist, from_dim=0)
    parameters = distributions.extract_distribution_parameters(dist)
    built = spec.build_distribution(parameters).bijector
    # Parameters without batch axes may have got those of the distribution.
    assert type(built) is type(bijector)
    assert built.cache_size == bijector.cache_size
    assert built.validate_args == bijector.validate_args
    for name in bijector._map_parameters:
        got, wanted = (getattr(each, name) for each in (built, bijector))
        np.testing.assert_array_equal(*np.broadcast_arrays(got, wanted))


over_some = pytest.mark.parametrize(
    "names",
    [
        pytest.param(("MaskedCategorical", "Product", "TruncatedNormal"), id="some"),
        pytest.param(tuple(EXAMPLES), id="all", marks=pytest.mark.slow),
    ],
)


@pytest.fixture(scope="module")
def everything():
    """All examples, their specs and their parameters as rows of numpy."""
    dists = {name: example() for name, example in EXAMPLES.items()}
    rows = distributions.distributions_to_params(dists)
    rows = tf.nest.map_structure(lambda x: x.numpy(), rows)
    return dists, distributions.extract_spec(dists, from_dim=1), rows


def log_probs_of(built, values):
    return {name: built[name].log_prob(values[name]) for name in built}


def test_rows_of_a_storage(everything):
    dists, specs, rows = everything
    row_specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec(x.shape[1:], x.dtype), rows
    )
    storage = replay.NumpyStorage(row_specs, 9)
    storage.set(slice(3, 7), rows)
    taken = storage.get(np.array([5, 3]))
    built = distributions.params_to_distributions(taken, specs)
    for name, dist in dists.items():
        assert_same(built[name], EXAMPLES[name](**taken_of(name, [2, 0])))
        assert built[name].batch_shape == [2], name
        assert dist.batch_shape == [4], name


def taken_of(name, places):
    return {k: tf.constant(x[places]) for k, x in EXAMPLES[name].parameters.items()}


@over_some
def test_datasets(everything, names):
    dists, specs, rows = ({name: part[name] for name in names} for part in everything)
    values = {name: dist.mode() for name, dist in dists.items()}
    wanted = log_probs_of(dists, values)
    data = tf.data.Dataset.from_tensor_slices((rows, values)).batch(2)
    data = data.map(
        lambda rows, values: log_probs_of(
            distributions.params_to_distributions(rows, specs), values
        )
    )
    for index, got in enumerate(data):
        part = slice(2 * index, 2 * index + 2)
        assert_close(got, {name: x[part] for name, x in wanted.items()})
    assert index == 1


@over_some
def test_replicas(everything, names):
    dists, specs, rows = ({name: part[name] for name in names} for part in everything)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    values = {name: dist.sample(seed=SEED) for name, dist in dists.items()}
    values = tf.nest.map_structure(tf.identity, values)

    def on_replica(rows, dists):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        built = distributions.params_to_distributions(rows, specs)
        draws = {name: dist.sample(seed=SEED) for name, dist in built.items()}
        return draws, log_probs_of(dists, values), tf.identity(replica)

    draws, log_probs, replicas = strategy.run(on_replica, args=(rows, dists))
    assert [int(x) for x in strategy.experimental_local_results(replicas)] == [0, 1]
    wanted = values, log_probs_of(dists, values)
    for replica in range(2):
        local = tf.nest.map_structure(
            lambda x, replica=replica: strategy.experimental_local_results(x)[replica],
            (draws, log_probs),
        )
        assert_close(local, wanted)
