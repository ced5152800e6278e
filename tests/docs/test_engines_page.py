"""The page of engines and trainers says what their last runs found."""

import json
from pathlib import Path

from onrecord.rollout.engines import DIALECTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_kept_results(monkeypatch):
    """The tables are those of the kept results: a run of one engine keeps the rows of the others."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import engines

    results = json.loads((ROOT / "docs" / "engines.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    assert engines.engine_table(results) in page
    assert engines.trainer_table(results) in page
    assert {dialect for one in results.values() for dialect in one["counts"]} >= set(DIALECTS)
    assert all(one["passed"] for one in results.values())
