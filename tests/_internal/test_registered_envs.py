"""Tests of `tfrl._internal.registered_envs`."""

import sys

import gymnasium as gym

from tfrl._internal import registered_envs


def test_registrations_of_the_main_script_are_sent_by_what_they_name(monkeypatch):
    class Mine(gym.Env):
        pass

    monkeypatch.setattr(sys.modules["__main__"], "Mine", Mine, raising=False)
    spec = gym.envs.registration.EnvSpec("Mine-v0", entry_point="__main__:Mine")
    monkeypatch.setitem(gym.registry, "Mine-v0", spec)
    sent = registered_envs.registration("Mine-v0")
    assert sent.entry_point is Mine and sent.id == "Mine-v0"
    del gym.registry["Mine-v0"]
    assert registered_envs.made_after([], sent, lambda: gym.registry["Mine-v0"]) is sent
    monkeypatch.setitem(gym.registry, "Mine-v0", spec)
    assert registered_envs.made_after([], sent, lambda: gym.registry["Mine-v0"]) is spec
