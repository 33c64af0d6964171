"""Games by turns, as several agents play them."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces as S

from tfrl import host
from tfrl.environments import ParallelEnvVector


def test_who_drops_out_hides_nobody_who_is_on_turn():
    library = pytest.importorskip("pettingzoo")

    class Three(library.AECEnv):
        """Moves in turn, of which the third ends its player, the sixth the game."""

        metadata: ClassVar = {"name": "three"}
        render_mode, possible_agents = None, ["x", "y", "z"]

        def observation_space(self, agent):
            return S.Dict(action_mask=S.MultiBinary(2))

        def action_space(self, agent):
            return S.Discrete(2)

        def observe(self, agent):
            is_on_turn = agent == self.agent_selection
            return {"action_mask": np.full(2, is_on_turn, np.int8)}

        def reset(self, seed=None, options=None):
            self.agents, self.count = [*self.possible_agents], 0
            self.agent_selection = "x"
            nothing = dict.fromkeys(self.agents, 0.0)
            self.rewards, self._cumulative_rewards = dict(nothing), dict(nothing)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict(self.terminations)
            self.infos = {agent: {} for agent in self.agents}

        def step(self, action):
            mover = self.agent_selection
            if self.terminations[mover]:
                return self._was_dead_step(action)
            self.count += 1
            place = self.agents.index(mover) + 1
            self.agent_selection = self.agents[place % len(self.agents)]
            self.terminations[mover] = self.count == 3
            if self.count == 6:
                self.terminations = dict.fromkeys(self.agents, True)
            return self._deads_step_first()

    stepper, movers = host.Stepper(ParallelEnvVector(Three, 3), seed=0), []
    for _ in range(6):
        movers.append(stepper.observations["action_mask"].all(-1).nonzero()[0])
        outcome = stepper.step(np.zeros(3, int))
    # To who only waits, as the third does from its end on, all is allowed.
    assert [x.tolist() for x in movers] == [[0], [1], [2], [0, 2], [1, 2], [0, 2]]
    assert outcome.terminated[:2].all()
