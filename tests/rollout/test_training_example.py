"""The example that trains: exact ids give the trainer exactly what the engine sampled."""

from examples.rollout.tokenizer import make
from examples.rollout.train import train


def test_the_trainer_sees_what_the_engine_sampled(tmp_path):
    """Through aborts and weight updates no token drifts, and at step 0 the logprobs are the engine's own.

    Re-tokenised text drifts: the same trainer gets other ids and other logprobs.
    """
    make(tmp_path / "tokenizer")
    exact = train(tmp_path, exact=True, steps=2)
    assert (exact.drifted, exact.aborted > 0) == (0, True)
    assert exact.difference < 1e-5
    assert len(exact.rewards) == 2
    text = train(tmp_path, exact=False, steps=1)
    assert text.drifted / text.tokens > 0.1
    assert text.difference > 0.1
