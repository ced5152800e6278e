"""The example that trains: exact ids give the trainer exactly what the engine sampled, and the reward rises."""

from statistics import mean

from examples.rollout.tokenizer import make
from examples.rollout.train import train

STEPS = 6


def test_the_reward_rises_on_exact_ids(tmp_path):
    """A policy trained through the proxy earns more than twice its first reward, with aborted rollouts on the way.

    No token drifts, and at step 0 the trainer's logprobs are the engine's own. Re-tokenised text drifts: the same
    trainer starts with the same rewards, and gets other ids and other logprobs. Seeds decide everything that is sampled.
    """
    make(tmp_path / "tokenizer")
    exact = train(tmp_path, exact=True, steps=STEPS)
    assert len(exact.rewards) == STEPS
    assert mean(exact.rewards[-2:]) > 2 * mean(exact.rewards[:2])
    assert (exact.drifted, exact.aborted > 0) == (0, True)
    assert exact.difference < 1e-5
    assert exact.kl == 0
    text = train(tmp_path, exact=False, steps=1)
    assert text.rewards == exact.rewards[:1]
    assert text.drifted / text.tokens > 0.1
    assert text.difference > 0.1
    assert text.kl > 0.1
