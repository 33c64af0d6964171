"""One row per public Keras class: how it is made, and what it takes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import foreign_layers
import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl import layers, losses, policies, schedules, training
from tfrl.core import initializers

KINDS = {
    "layer": keras.layers.Layer,
    "loss": keras.losses.Loss,
    "metric": keras.metrics.Metric,
    "initializer": keras.initializers.Initializer,
    "regularizer": keras.regularizers.Regularizer,
    "constraint": keras.constraints.Constraint,
    "optimizer": keras.optimizers.Optimizer,
    "schedule": keras.optimizers.schedules.LearningRateSchedule,
}
PLACES = gym.spaces.Dict(
    goal=gym.spaces.Discrete(3), place=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
)


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A layer or model.

    Attributes:
        covers: the name it stands for, `room.Name`.
        make: makes it anew, always with the same initial weights, of a dtype policy.
        specs: a `keras.Input` shape and dtype for each positional argument, or one
            nest of such pairs.
        half: by how much half precision may change the outputs.
        name: of the row; that of the class by default.
        own_dtype: whether its outputs do not follow the dtype policy.
        own_batch: why a replica's half of a batch teaches it something else, if so.
    """

    covers: str
    make: Callable[..., Any]
    specs: Any = (((3,), "float32"),)
    half: float = 2e-2
    name: str = ""
    own_dtype: bool = False
    own_batch: str = ""

    def arguments(self, batch: int) -> list[Any]:
        """Values for a batch of that size; the same for the same size."""
        rng = np.random.default_rng(batch)

        def values(spec: Any) -> Any:
            shape, dtype = spec
            if dtype.endswith(("int64", "int8")):
                most = 256 if dtype == "uint8" else 3
                return rng.integers(most, size=(batch, *shape), dtype=dtype)
            return rng.normal(size=(batch, *shape)).astype(dtype)

        return [map_specs(values, spec) for spec in self.specs]

    def inputs(self) -> list[Any]:
        """Keras inputs of unknown batch size."""
        names = iter("abcdef")

        def make(spec: Any, name: str | None = None) -> Any:
            shape, dtype = spec
            return keras.Input(shape, dtype=dtype, name=name or next(names))

        return [
            {key: make(each, key) for key, each in spec.items()}
            if isinstance(spec, Mapping)
            else make(spec)
            for spec in self.specs
        ]

    def model(self, policy: str = "float32") -> keras.Model:
        """A model of unknown batch size: itself, or a functional one around it."""
        made = self.make(dtype=policy)
        if isinstance(made, keras.Model):
            made(*self.arguments(2))
            return made
        inputs = self.inputs()
        outputs = made(*inputs)
        return keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)

    def given(self, batch: int) -> Any:
        """What the model is called with."""
        arguments = self.arguments(batch)
        return arguments if len(arguments) > 1 else arguments[0]


def map_specs(function: Callable[[Any], Any], spec: Any) -> Any:
    """Maps the `(shape, dtype)` pairs of a dict, or one of them."""
    if isinstance(spec, Mapping):
        return {key: function(each) for key, each in spec.items()}
    return function(spec)


@keras.saving.register_keras_serializable("conformance")
def affine() -> Any:
    return foreign_layers.Affine(2)


@keras.saving.register_keras_serializable("conformance")
def squares(model: Any, x: Any) -> Any:
    return tf.reduce_sum(model(x) ** 2, axis=-1)


def fit_model(dtype: str) -> training.FitModel:
    def network() -> keras.Sequential:
        kernel = initializers.Orthogonal(seed=0)
        dense = keras.layers.Dense(2, kernel_initializer=kernel, dtype=dtype)
        return keras.Sequential([keras.Input([3]), dense])

    first = network()
    updater = layers.TargetUpdater(first, network(), tau=0.5)
    return training.FitModel(first, squares, updater)


def siamese(dtype: str) -> Any:
    return losses.AsymmetricSimSiamLoss(
        input_size=6,
        proj_hidden_size=16,
        pred_hidden_size=16,
        output_size=4,
        dtype=dtype,
    )


KERNEL = keras.initializers.Orthogonal(seed=1)
PAIR = (((2, 6), "float32"), ((2, 6), "float32"))
PLACE = ({"goal": ((), "int64"), "place": ((2,), "float32")},)
LAYERS = (
    LayerRow(
        "layers.AsKeras", lambda dtype: layers.AsKeras(affine, rng=3, dtype=dtype)
    ),
    LayerRow(
        "layers.DistributionHead",
        lambda dtype: layers.DistributionHead(
            gym.spaces.Box(-1.0, 1.0, (2,)), kernel_initializer=KERNEL, dtype=dtype
        ),
        own_dtype=True,
    ),
    LayerRow(
        "layers.DistributionHead",
        lambda dtype: layers.DistributionHead(
            PLACES, state_dependent_scale=False, kernel_initializer=KERNEL, dtype=dtype
        ),
        name="DistributionHead of a nest",
        own_dtype=True,
    ),
    LayerRow(
        "layers.RunningNormalization",
        lambda dtype: layers.RunningNormalization(dtype=dtype),
    ),
    LayerRow(
        "losses.AsymmetricSimSiamLoss",
        siamese,
        PAIR,
        half=0.2,
        own_dtype=True,
        own_batch="its batch normalization is that of Keras, of each replica",
    ),
    LayerRow("policies.MLP", lambda dtype: policies.MLP([4, 4], dtype=dtype)),
    LayerRow(
        "policies.MLP",
        lambda dtype: policies.MLP([4], n_outputs=3, dtype=dtype),
        name="MLP with outputs",
        own_dtype=True,
    ),
    LayerRow(
        "policies.SpaceEncoder",
        lambda dtype: policies.SpaceEncoder(
            policies.SpaceEncoder.describe(PLACES), dtype=dtype
        ),
        PLACE,
        own_dtype=True,
    ),
    LayerRow(
        "policies.ActorCritic",
        lambda dtype: policies.ActorCritic(
            policies.SpaceEncoder.describe(PLACES),
            n_outputs=2,
            log_std=0.1,
            hidden_units=[4],
            dtype=dtype,
        ),
        PLACE,
        own_dtype=True,
    ),
    *[
        LayerRow(
            "policies.ActionValues",
            lambda dtype, dueling=dueling: policies.ActionValues(
                policies.SpaceEncoder.describe(PLACES),
                n_outputs=3,
                dueling=dueling,
                hidden_units=[4],
                dtype=dtype,
            ),
            PLACE,
            name=f"ActionValues, dueling {dueling}",
            own_dtype=True,
        )
        for dueling in (False, True)
    ],
    LayerRow(
        "policies.Actor",
        lambda dtype: policies.Actor(
            policies.SpaceEncoder.describe(PLACES), 2, hidden_units=[4], dtype=dtype
        ),
        PLACE,
        own_dtype=True,
    ),
    LayerRow(
        "policies.DeterministicActor",
        lambda dtype: policies.DeterministicActor(
            policies.SpaceEncoder.describe(PLACES),
            low=[-1.0, -2.0],
            high=[1.0, 2.0],
            hidden_units=[4],
            dtype=dtype,
        ),
        PLACE,
        own_dtype=True,
    ),
    LayerRow(
        "policies.DeterministicActor",
        lambda dtype: policies.DeterministicActor(
            policies.SpaceEncoder.describe(PLACES),
            low=[-1.0, -np.inf],
            high=[3.0, 2.0],
            hidden_units=[4],
            dtype=dtype,
        ),
        PLACE,
        name="DeterministicActor, some bounds",
        own_dtype=True,
    ),
    LayerRow("training.FitModel", fit_model),
)
# Slow ones, which the least tests take.
FRAMES = gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)
IMAGE_LAYERS = (
    LayerRow(
        "policies.SpaceEncoder",
        lambda dtype: policies.SpaceEncoder(
            policies.SpaceEncoder.describe(FRAMES), dtype=dtype
        ),
        (((2, 36, 36), "uint8"),),
        name="SpaceEncoder of images",
        own_dtype=True,
    ),
    LayerRow(
        "policies.ActorCritic",
        lambda dtype: policies.ActorCritic(
            policies.SpaceEncoder.describe(FRAMES), n_outputs=2, dtype=dtype
        ),
        (((2, 36, 36), "uint8"),),
        name="ActorCritic of images",
        own_dtype=True,
    ),
)


@dataclasses.dataclass(frozen=True)
class LossRow:
    """A loss of the house as a Keras loss.

    Attributes:
        name: of the row.
        make: makes it.
        true: shape of a target, without the batch.
        pred: shape of a prediction.
    """

    name: str
    make: Callable[[], Any]
    true: tuple[int, ...] = ()
    pred: tuple[int, ...] = (1,)

    def values(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Targets and predictions, between 0 and 1."""
        rng = np.random.default_rng(batch)
        shapes = ((batch, *self.true), (batch, *self.pred))
        return tuple(rng.random(size=s).astype(np.float32) for s in shapes)


def _as_loss(loss: Any, **arguments: Any) -> Callable[[], Any]:
    return lambda: losses.as_keras_loss(loss, arguments=arguments)


LOSSES = (
    LossRow("td_loss", _as_loss(losses.td_loss, huber_delta=1.0)),
    LossRow("expectile_loss", _as_loss(losses.expectile_loss, expectile=0.7)),
    LossRow("value_loss", _as_loss(losses.value_loss), (1,)),
    LossRow("policy_gradient_loss", _as_loss(losses.policy_gradient_loss), (1,)),
    LossRow("huber", _as_loss(losses.element_wise_huber_loss), (1,)),
    LossRow("squared", _as_loss(losses.element_wise_squared_loss), (1,)),
    LossRow("quantile_huber", _as_loss(losses.multi_quantile_huber_loss), (), (5,)),
    LossRow("quantile_td", _as_loss(losses.quantile_td_loss), (1,), (5,)),
    LossRow("categorical_td", _as_loss(losses.categorical_td_loss), (5,), (5,)),
    LossRow("MeanSquaredLoss", _as_loss(losses.MeanSquaredLoss()), (1,)),
    LossRow("SquareLoss", _as_loss(losses.SquareLoss()), (), (1,)),
    LossRow(
        "DiscreteRegressionLoss", _as_loss(losses.DiscreteRegressionLoss()), (), (5,)
    ),
    LossRow(
        "OrderedDiscreteRegressionLoss",
        _as_loss(losses.OrderedDiscreteRegressionLoss()),
        (),
        (5,),
    ),
    LossRow(
        "QuantileRegressionLoss", _as_loss(losses.QuantileRegressionLoss()), (), (5,)
    ),
)

INITIALIZERS = {
    "losses.InitialBias": lambda: losses.InitialBias(losses.DiscreteRegressionLoss())
}

PAIRS = [(5, 1.3), (10, 0.7), (20, 0.1)]
SCHEDULES = {
    "schedules.ConstantScheduler": lambda: schedules.ConstantScheduler(0.5),
    "schedules.CyclicalScheduler": lambda: schedules.CyclicalScheduler(
        "iterations", 0.1, 0.7, 3, "linear"
    ),
    "schedules.ExponentialScheduler": lambda: schedules.ExponentialScheduler(
        "iterations", 0.7, 0.3, 10
    ),
    "schedules.LinearScheduler": lambda: schedules.LinearScheduler(
        "percent", [(0, 0.2), (0.25, 1.3), (0.5, 0.7), (1.0, 0.1)]
    ),
    "schedules.StepScheduler": lambda: schedules.StepScheduler(
        "env_steps", PAIRS, warm_up_period=3, start=1
    ),
    "schedules.StepwiseLinearFunction": lambda: schedules.StepwiseLinearFunction(
        (2, 1.3), (10, 0.7), (20, 0.1)
    ),
    "schedules.CosineScheduler": lambda: schedules.CosineScheduler(
        "iterations", 0.7, 10
    ),
    "schedules.PolynomialScheduler": lambda: schedules.PolynomialScheduler(
        "env_steps", 0.7, 0.1, 2.0, 10
    ),
    "schedules.OneCycleScheduler": lambda: schedules.OneCycleScheduler(
        "iterations", 0.7, 20
    ),
    "schedules.JoinedScheduler": lambda: schedules.JoinedScheduler(
        "iterations", [(0, 0.5), (10, schedules.ConstantScheduler(0.1))]
    ),
    "schedules.WarmUpScheduler": lambda: schedules.WarmUpScheduler(
        "iterations", 5, 0.5
    ),
}
WITHOUT_ROW = {
    "policies.Critics": "of networks by rows: tests/policies/test_critics.py has it",
    "policies.NoisyDense": "learns by noise it is given: test_rainbow.py has it",
    "policies.RecurrentNetwork": "takes a memory: tests/policies/test_recurrent.py",
    "schedules.Scheduler": "an interface: what implements it has rows",
    "training.AgentModel": "of an agent alone: tests/training/fitting has it",
}
