"""Small parallel environments whose agents end, leave and join in all ways."""

import gymnasium as gym
import numpy as np

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,), np.float32)


class Relay:
    """Three agents that play for other times, drawn at reset; one joins late.

    What is seen is a mark of the game, the step of the game and the last action, so
    that no two moments look alike. The reward is ten times the action plus the step.
    """

    metadata = {"name": "relay"}
    render_mode = None

    def __init__(self, joins=True, spaces="box"):
        self.possible_agents = ["a", "b", "c"]
        self.agents = []
        self.joins, self.spaces = joins, spaces
        self.chance = np.random.default_rng()

    def observation_space(self, agent):
        return {
            "box": BOX,
            "dict": S.Dict(number=S.Discrete(99, start=3), seen=BOX),
            "unequal": {"a": BOX, "b": S.Discrete(9), "c": S.MultiBinary(4)}[agent],
        }[self.spaces]

    def action_space(self, agent):
        return S.Discrete(4 if self.spaces == "unequal" and agent == "b" else 3)

    def seen(self, agent, action=-1):
        box = np.array([self.mark, self.steps, action], np.float32)
        if self.spaces == "dict":
            return {"number": 3 + self.steps, "seen": box}
        if self.spaces == "unequal" and agent != "a":
            return 5 if agent == "b" else np.array([1, 0, 1, 1], np.int8)
        return box

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.chance = np.random.default_rng(seed)
        self.mark = float(self.chance.random())
        self.steps = 0
        self.lengths = dict(
            zip("abc", self.chance.integers(1, 6, 3).tolist(), strict=True)
        )
        self.begin = int(self.chance.integers(0, 3)) if self.joins else 0
        self.is_cut = self.chance.random(3) < 0.5
        self.agents = [x for x in "abc" if x != "c" or not self.begin]
        return {x: self.seen(x) for x in self.agents}, {x: {} for x in self.agents}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.steps += 1
        if self.steps == self.begin:
            self.agents.append("c")
        seen = {x: self.seen(x, actions.get(x, -1)) for x in self.agents}
        rewards = {x: 10.0 * actions.get(x, 0) + self.steps for x in seen}
        over = {
            x: x in actions
            and self.steps - (self.begin if x == "c" else 0) >= self.lengths[x]
            for x in seen
        }
        cut = dict(zip("abc", self.is_cut.tolist(), strict=True))
        terminated = {x: over[x] and not cut[x] for x in seen}
        truncated = {x: over[x] and cut[x] for x in seen}
        self.agents = [x for x in self.agents if not over[x]]
        return seen, rewards, terminated, truncated, {x: {"mark": 1.0} for x in seen}

    def close(self):
        pass


def episodes_by_hand(seed, choose, n_games, **options):
    """Plays whole games in plain Python; of each, what its agents went through.

    A list of transitions (seen, action, reward, terminated, truncated, next seen).
    """
    game = Relay(**options)
    found = []
    for i in range(n_games):
        seen, _ = game.reset(seed=seed if not i else None)
        played = {}
        while game.agents:
            actions = {x: choose(seen[x]) for x in game.agents}
            after, rewards, terminated, truncated, _ = game.step(actions)
            for x, action in actions.items():
                row = seen[x], action, rewards[x], terminated[x], truncated[x], after[x]
                played.setdefault(x, []).append(row)
            seen = after
        found.append(played)
    return found
