"""A rollout as a tree, in Python: where a request belongs, what lines share, and what counts as discarded."""

import pytest

import onrecord
from onrecord.errors import Conflict, InvalidInput, SessionFrozen
from onrecord.rollout import branches
from onrecord.rollout.branches import BUSY, SAME, Choice, Line, RolloutTree, branching, choose, read_tree
from onrecord.rollout.recording import open_rollout
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import ChatRequest
from tests.rollout.world import LETTERS, answer, assistant, user

POLICY = Policy(max_rollback=0)


def said(*texts, policy=POLICY):
    """A line in which the assistant answered each text with a capital of it."""
    trajectory, messages = LinearTrajectory(policy), []
    for text in texts:
        messages.append(user(text))
        prepared = trajectory.prepare(ChatRequest(messages), LETTERS)
        messages.append(dict(trajectory.update_pretokenized_state(prepared, answer(text.upper())).message or {}))
    return trajectory


def talk(*texts):
    """A conversation: user, assistant, user and so on."""
    return [user(text) if index % 2 == 0 else assistant(text) for index, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("messages", "chosen"),
    [
        (talk("a"), Choice("one", 0)),  # the first prompt again, and its answer was built upon
        (talk("a", "A", "b"), Choice("one")),  # the request of the last turn: its answer is on record
        (talk("a", "A", "b", "B", "c"), Choice("one")),
        (talk("x"), Choice("two")),  # the same for the other line
        (talk("x", "X", "y"), Choice("two")),
        (talk("a", "A", "c"), Choice("one", 1)),  # an edit
        (talk("a", "A", "c", "B", "d"), Choice("one", 1)),  # an edit before a generated turn
        (talk("a", "A", "b", "b", "c"), Choice("one")),  # the last turn in another spelling: refused there
        (talk("a", "Z", "b"), Choice("one", 0)),  # an earlier turn was edited
        (talk("q"), Choice("one", 0)),  # another first prompt
        ([*talk("a", "A"), assistant("B"), user("c")], Choice("one", 1)),  # the answer, without what was asked
    ],
)
def test_where_a_request_belongs(messages, chosen):
    """On the line that it continues furthest, or on a new one that shares the turns before the difference."""
    assert choose([Line("one", said("a", "b")), Line("two", said("x"))], messages) == chosen


def test_an_answer_without_its_question_is_a_line_of_its_own():
    """Also if one turn may be discarded: the answer would be lost, and come back as text of the client."""
    lines = [Line("one", said("a", "b", policy=branching(Policy(max_rollback=1))))]
    assert choose(lines, [*talk("a", "A"), assistant("B"), user("c")]) == Choice("one", 1)
    assert choose(lines, talk("a", "A", "c")) == Choice("one")


@pytest.mark.parametrize("limit", [0, 1])
def test_an_answer_of_another_line_is_no_other_spelling(limit):
    """Two answers to one prompt, and the conversation behind one of them is edited: a branch of it, not a refusal."""
    policy = branching(Policy(max_rollback=limit))
    trajectory, short = said("a", "b", "c", policy=policy), LinearTrajectory(policy)
    prepared = short.prepare(ChatRequest([user("a")]), LETTERS)
    short.update_pretokenized_state(prepared, answer("other"))
    for lines in ([Line("long", trajectory), Line("short", short)], [Line("short", short), Line("long", trajectory)]):
        assert choose(lines, talk("a", "A", "x")) == Choice("long", 1)
        assert choose(lines, talk("a", "other", "x")) == Choice("short")


def test_a_running_line_is_left_alone():
    """Only the same request joins a running turn; another one gets a line of its own."""
    lines = [Line("one", said("a"), BUSY)]
    assert choose(lines, talk("a", "A", "b")) == Choice("one", 1)
    assert choose([Line("one", said("a"), SAME)], talk("a", "A", "b")) == Choice("one")


def test_an_answer_again_is_a_line_of_its_own():
    """A request that has an answer gets a sibling; one that has none continues as usual."""
    lines = [Line("one", said("a", "b"))]
    assert choose(lines, talk("a", "A", "b"), again=True) == Choice("one", 1)
    assert choose(lines, talk("a", "A", "b", "B", "c"), again=True) == Choice("one")


def test_the_rollback_limit():
    """Within the limit a request discards turns of its line, as without branches; beyond it, it is a branch."""
    lines = [Line("one", said("a", "b", "c", policy=Policy(max_rollback=1)))]
    assert choose(lines, talk("a", "A", "b", "B", "x")) == Choice("one")
    assert choose(lines, talk("a", "A", "x")) == Choice("one", 1)


@pytest.fixture
def records(tmp_path):
    with onrecord.connect(str(tmp_path / "store.db"), project="rollouts") as records:
        yield records


def turn(tree, messages, text, **how):
    """A turn on the line where it belongs."""
    rollout = tree.line(messages, **how)
    prepared = rollout.prepare(ChatRequest(messages), LETTERS)
    rollout.commit(rollout.intend(prepared), answer(text))
    return rollout


def test_a_tree_in_python(records):
    """Lines share their first ids on record, each leaf is a sample, and the tree is the same after a restart."""
    tree = RolloutTree(records, "task")
    turn(tree, talk("a"), "A")
    turn(tree, talk("a", "A", "b"), "B")
    other = turn(tree, talk("a", "A", "c"), "C")
    alone = turn(tree, talk("summary"), "S")
    assert [line.session.name for line in tree.lines] == ["task", "task.1", "task.2"]
    assert other.trajectory.records[0] == tree.lines[0].trajectory.records[0]
    found = tree.tree()
    assert found.about() == read_tree(records, "task").about()
    assert [(one["turns"], one["shared_turns"]) for one in found.about()["lines"]] == [(2, 0), (2, 1), (1, 0)]
    tree.leave()
    again = RolloutTree(records, "task")
    assert again.line(talk("summary", "S", "x")).session.id == alone.session.id
    samples = again.freeze()
    assert [sample.session for sample in samples] == [line.session.id for line in again.lines]
    one, two, three = samples
    assert one.tokens[: two.shared_length].tolist() == two.tokens[: two.shared_length].tolist()
    assert (two.shared_length, three.shared_length) == (one.turn_ends[0], 0)
    with pytest.raises(SessionFrozen):
        again.line(talk("another"))
    assert [sample.tokens.tolist() for sample in again.freeze()] == [sample.tokens.tolist() for sample in samples]


def test_a_line_that_another_continues_is_no_leaf(records):
    """If a branch begins at the end of a line, the branch has all of it: the line itself is not a second sample."""
    tree = RolloutTree(records, "task")
    trunk = turn(tree, talk("a"), "A")
    branched = trunk.branch("task.1")
    assert [node.head.session for node in tree.tree().leaves()] == [trunk.session.id]
    tree.leave()
    tree = RolloutTree(records, "task")
    (line,) = [line for line in tree.lines if line.session.id == branched.id]
    line.commit(line.intend(line.prepare(ChatRequest(talk("a", "A", "b")), LETTERS)), answer("B"))
    assert [node.head.session for node in tree.tree().leaves()] == [branched.id]
    assert len(tree.freeze()) == 1


def test_discarded_tokens_of_a_tree(records):
    """A shared turn counts once; a replaced one is discarded, unless a branch still has it."""
    tree = RolloutTree(records, "task", policy=Policy(max_rollback=1))
    trunk = turn(tree, talk("a"), "A")
    turn(tree, talk("a", "A", "b"), "BBBB")
    kept = trunk.branch("kept")
    turn(tree, talk("a", "A", "c"), "CC")
    told = read_tree(records, "task")
    assert trunk.trajectory.discarded_tokens == 5
    assert (told.sampled_tokens, told.discarded_tokens) == (2 + 5 + 3, 5)
    tree.leave()
    tree = RolloutTree(records, "task", policy=Policy(max_rollback=1))
    (line,) = [line for line in tree.lines if line.session.id == kept.id]
    line.commit(line.intend(line.prepare(ChatRequest(talk("a", "A", "b", "BBBB", "d")), LETTERS)), answer("D"))
    told = read_tree(records, "task")
    assert (told.sampled_tokens, told.discarded_tokens) == (2 + 5 + 3 + 2, 0)


def test_a_discarded_turn_counts_where_it_was_sampled(records):
    """A branch does not count what its trunk had discarded before; with and without merging."""
    for merge in (True, False):
        tree = RolloutTree(records, f"task-{merge}", policy=Policy(max_rollback=1))
        trunk = turn(tree, talk("a"), "A")
        turn(tree, talk("a", "A", "b"), "BBBB")
        turn(tree, talk("a", "A", "c"), "CC")
        branched = open_rollout(records, trunk.branch(f"kept-{merge}").id, policy=Policy(max_rollback=1))
        for text in ("d", "e"):
            asked = ChatRequest(talk("a", "A", "c", "CC", text))
            branched.commit(branched.intend(branched.prepare(asked, LETTERS)), answer("DDD"))
        counted = []
        for rollout in (trunk, branched):
            rollout.freeze(merge=merge)
            counted.append([sample.discarded_tokens for sample in rollout.samples()])
        rest = [0] * (0 if merge else 1)
        assert counted == [[5, *rest], [4, *rest, *rest]]
        assert (trunk.lane.discarded, branched.lane.discarded) == ([5], [4])


def test_a_line_that_ended_leaves_the_tree(records):
    """A deleted line is no sample, an acknowledged one is not delivered again; the others continue as before."""
    tree = RolloutTree(records, "task")
    turn(tree, talk("a"), "A")
    deleted, acknowledged = turn(tree, talk("x"), "X"), turn(tree, talk("y"), "Y")
    deleted.retire("wrong", unacknowledged=True)
    acknowledged.acknowledge(acknowledged.freeze().digest)
    acknowledged.retire("trained on")
    tree.leave()
    tree = RolloutTree(records, "task")
    assert [line.session.name for line in tree.lines] == ["task"]
    turn(tree, talk("x"), "X")
    turn(tree, talk("a", "A", "b"), "B")
    told = tree.tree()
    assert [(one["name"], one["leaf"]) for one in told.about()["lines"]] == [
        ("task", True), ("task.1", False), ("task.2", True), ("task.3", True)
    ]  # fmt: skip
    assert told.discarded_tokens == len("X.")
    tree.lines[1].retire("wrong too", unacknowledged=True)
    assert [sample.session for sample in tree.freeze()] == [tree.lines[0].session.id]


def test_a_line_whose_end_was_deleted_is_a_sample_again(records):
    """If all that continues a line was deleted, its own turns are not lost with it."""
    tree = RolloutTree(records, "task")
    trunk = turn(tree, talk("a"), "A")
    branched = open_rollout(records, trunk.branch("on").id)
    branched.commit(branched.intend(branched.prepare(ChatRequest(talk("a", "A", "b")), LETTERS)), answer("B"))
    assert [node.head.name for node in tree.tree().due()] == ["on"]
    branched.retire("wrong", unacknowledged=True)
    assert [node.head.name for node in tree.tree().due()] == ["task"]


def test_freezing_finds_the_lines_of_others(records):
    """A leaf that was branched by hand, or by another process, after the tree was opened has its sample."""
    tree = RolloutTree(records, "task")
    trunk = turn(tree, talk("a"), "A")
    branched = open_rollout(records, trunk.branch("on").id)
    branched.commit(branched.intend(branched.prepare(ChatRequest(talk("a", "A", "b")), LETTERS)), answer("B"))
    branched.leave()
    alone = open_rollout(records, trunk.branch("alone", turns=0).id)
    alone.commit(alone.intend(alone.prepare(ChatRequest(talk("x")), LETTERS)), answer("X"))
    alone.leave()
    assert [sample.session for sample in tree.freeze()] == [branched.session.id, alone.session.id]


def test_frozen_samples_have_no_new_branches(records):
    """A branch would replace what a trainer may have; it makes no difference who froze them, and when."""
    tree = RolloutTree(records, "task")
    trunk = turn(tree, talk("a"), "A")
    before = tree.freeze()
    with pytest.raises(SessionFrozen):
        trunk.branch("late")
    assert records.named("late") is None
    assert [sample.session for sample in tree.freeze()] == [sample.session for sample in before]


def test_a_tree_without_turns_has_no_samples(records):
    """There is nothing to freeze."""
    with pytest.raises(Conflict, match="no line"):
        RolloutTree(records, "task").freeze()


def test_branches_have_a_limit(records, monkeypatch):
    """An agent that never repeats its conversation is stopped, with the reason."""
    monkeypatch.setattr(branches, "BRANCHES_LIMIT", 2)
    tree = RolloutTree(records, "task")
    turn(tree, talk("a"), "A")
    turn(tree, talk("b"), "B")
    with pytest.raises(InvalidInput, match="2 branches"):
        tree.line(talk("c"))
