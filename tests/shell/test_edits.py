"""Edits through a shell: certain where the line says it, likely where it depends on something, else not seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.shell import CERTAIN, LIKELY, UNSEEN
from onrecord.shell.edits import edit_in
from onrecord.shell.words import simple_commands

ROOT = "/home/x/project"


def is_own(path: str) -> bool:
    return path in ("STATE.md", ".onrecord/NOTE.md")


def judged(line: str) -> str:
    return edit_in(line, ROOT, is_own)


@pytest.mark.parametrize(
    "line",
    [
        "sed -i s/a/b/ src/a.py", "sed -Ei.bak 's/a/b/' a.py", "sed --in-place=.old s/a/b/ a.py", "sed -i -e s/a/b/ a.py",
        "sed -i s/a/b/ *.py", "gsed -ni p a.py", "perl -pi -e 's/a/b/' a.py", "awk -i inplace '{print}' a.py",
        "echo x > src/a.py", "echo x>>a.py", "echo x >| a.py", "true &> log", "ls 2>err.txt", "ls 2> err.txt >&2",
        "echo x > a.py 2>&1", f"echo x > {ROOT}/a.py", "cat > a.py <<'EOF'\nprint(1)\nEOF", "cat <<EOF > a.py\nx\nEOF",
        "echo x | tee a.py", "tee -a a.py b.py < x", "sudo tee a.py", "dd if=x of=a.py",
        "git apply fix.patch", "git am x.mbox", "git -C . apply x", "git checkout -- a.py", "git checkout main", "git pull",
        "git restore a.py", "git restore --staged --worktree a.py", "git reset --hard", "git stash", "git stash pop",
        "git clean -fd", "git rm a.py", "git switch main", "git -c x=y merge other", "git rebase --abort",
        "patch -p1 < fix.diff", "patch a.py fix.diff", "cp b.py a.py", "cp -t src b.py", "mv a.py /tmp/a.py", "rm -rf build",
        "touch a.py", "truncate -s 0 a.py", "ln -s b a", "curl -o a.py https://x", "curl -O https://x/a", "wget https://x/a",
        "tar xzf a.tgz", "tar -xf a.tar",
        """python -c "open('a.py','w').write('x')" """, "python3 -c 'from pathlib import Path; Path(\"a.py\").write_text(\"\")'",
        "python - <<'PY'\nfrom pathlib import Path\np = Path('a.py')\np.write_text(p.read_text().replace('a', 'b'))\nPY",
        "python3 <<EOF\nwith open('a.py', mode='a') as f: f.write('x')\nEOF", "python -c 'import os; os.remove(\"a.py\")'",
        "python -c 'import shutil; shutil.copy(\"b\", \"a.py\")'", "python -c 'import os; os.system(\"sed -i s/a/b/ a.py\")'",
        "python -c 'import subprocess; subprocess.run([\"rm\", \"a.py\"])'",
        "bash -lc 'sed -i s/a/b/ a.py'", 'sh -c "echo x > a.py"', "bash <<EOF\nrm a.py\nEOF", "eval 'rm a.py'",
        "cd src && echo x >> a.py", f"cd {ROOT}/src; rm a.py", "pytest || echo x > a.py", "(rm a.py)", "if true; then rm a.py; fi",
        "for f in a b; do rm a.py; done", "env X=1 sed -i s/a/b/ a.py", "X=1 timeout 5 rm a.py", "timeout -k 1 5 rm a.py",
        "nice -n 5 rm a.py", "find . -name '*.pyc' -delete", "find src -exec sed -i s/a/b/ {} +", "x=$(rm a.py)",
        'echo "`rm a.py`"', "diff <(rm a.py) x", "uv run python -c \"open('a', 'w')\"", "ls # nothing\nrm a.py",
    ],
)  # fmt: skip
def test_an_edit_that_the_line_itself_says_is_certain(line):
    """A redirection, an editing program or code that writes, with a file of the worktree, is an edit for certain."""
    assert judged(line) == CERTAIN


@pytest.mark.parametrize(
    "line",
    [
        "echo x > $OUT", 'echo x > "$OUT"', "echo x > ~/a", "echo x > ../a", "cd $X && echo x > a", "cd .. && rm a",
        "rm $(git ls-files)", "git ls-files | xargs sed -i s/a/b/", "git ls-files | xargs -I {} -n 1 rm", "black src",
        "ruff format", "ruff check --fix .", "npx prettier --write .", "python -m black .", "cargo fmt", "vim a.py", "npm i x",
        "python -c 'import sys; open(sys.argv[1], \"w\")' a.py", "python -c 'open(\"x\", m)'", "python -c 'this is no python: write'",
        "node -e 'fs.writeFileSync(\"a\")'", "ruby -e 'File.write(1)'", "tar xf a.tar -C /opt", "echo 'open quote > x",
        "cd - && git checkout main", "unzip a.zip",
    ],
)  # fmt: skip
def test_an_edit_that_depends_on_something_is_likely(line):
    """A variable, an unknown directory or a program that usually rewrites files makes an edit likely."""
    assert judged(line) == LIKELY


@pytest.mark.parametrize(
    "line",
    [
        "ls -l", "", "grep '>' a.py", 'grep ">" a.py', "echo a \\> b", "pytest > /dev/null 2>&1", "pytest 2>&1 | tail", "echo a >&2",
        "sed -n 's/i/x/p' a.py", "sed -e 's/i/x/' a.py", "git diff > /tmp/x", "git status", "git stash list", "git log -i",
        "git checkout -b new", "git switch -c new", "git restore --staged a.py", "git apply --check x", "git reset", "git clean -n",
        "git rm --cached a", "git -C /tmp checkout main", "cat a.py", "cd /tmp && echo x > y", "cd /tmp && git checkout main",
        "echo 'sed -i x'", "python -c 'print(1)'", "python -c \"open('a.py').read()\"", "python -c \"open('/tmp/a', 'w')\"",
        "python train.py", "make", "npm test", "bash build.sh", "black --check .", "ruff check .", "prettier .", "gofmt -l .",
        "cat <<EOF\na > b\nEOF", "rm /tmp/x", "cp a.py /tmp/", "curl https://x", "curl -o - https://x", "tar czf /tmp/x.tgz .",
        "patch --dry-run -p1 < x", "echo x > STATE.md", "echo x > ./STATE.md", "tee .onrecord/NOTE.md", "[ 1 -gt 0 ]",
        "awk '{print $1 > 2}' f", "find . -name x", "find . -exec cat {} +", "node -e 'console.log(1)'", "mkdir x", "# rm a.py",
    ],
)  # fmt: skip
def test_what_edits_nothing_here_is_not_an_edit(line):
    """Reading, other directories, quoted operators and onrecord's own files are no edits; scripts are not seen."""
    assert judged(line) == UNSEEN


def test_a_worktree_below_tmp_is_a_worktree():
    """A path below /tmp counts where the worktree itself is there; without a known root it is only likely."""
    assert edit_in("echo x > /tmp/w/a.py", "/tmp/w") == CERTAIN
    assert edit_in("echo x > /tmp/other", "/tmp/w") == UNSEEN
    assert edit_in("echo x > /srv/a.py") == LIKELY


def test_words_keep_what_quotes_say():
    """Quotes, escapes, comments and here-documents are read as a shell reads them."""
    first, second = simple_commands("echo 'a b' \"c $X\" d\\ e # no\ncat <<-E\n\tbody > x\n\tE\n") or []
    assert [(word.text, word.sure) for word in first.words] == [
        ("echo", True), ("a b", True), ("c $X", False), ("d e", True),
    ]  # fmt: skip
    assert (second.words[0].text, second.body, second.written) == ("cat", "\tbody > x", [])
    assert simple_commands("echo 'open") is None


@given(st.text(alphabet="abc/ \n'\"$`(){}<>&|;\\#=-*", max_size=40))
def test_any_text_can_be_judged(line):
    """Whatever a command line is, it is judged and nothing is raised."""
    assert judged(line) in (CERTAIN, LIKELY, UNSEEN)
