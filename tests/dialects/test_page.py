"""The versions of docs/reference/served.md: what the doubles are served like, in step with the expectations."""

from __future__ import annotations

from pathlib import Path

from gateway.api.openai.parameters.table import PARAMETERS, served
from tests.dialects import page
from tests.dialects.bench import Bench
from tests.dialects.dialects import Dialect
from tests.dialects.expectations import expected
from tests.dialects.samples import SAMPLES
from tools.generated_part import replaced


def test_the_page_is_in_step() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == replaced(text, page.PART, page.render()), "make docs"


def test_what_the_page_says_is_what_a_running_gateway_says(bench: Bench, dialect: Dialect, tmp_path: Path) -> None:
    found = page.features(dialect, tmp_path)
    said = bench.http.get(f"/v1/models/{dialect.name}").json()
    hows = {name: capability["how"] for name, capability in said["capabilities"].items()}
    asked = {row.name for row in PARAMETERS if row.asks_engine and "chat" in row.endpoints} & hows.keys()
    assert asked
    assert {name: found.capabilities[name].how for name in asked} == {name: hows[name] for name in asked}
    assert (said["gateway"]["streams"], set(said["gateway"]["estimates"])) == (found.streams, set(found.estimates))
    rows = {name: page.find(name) for name in SAMPLES}
    impossible = {
        name for name, row in rows.items() if row.asks_engine and served(row, found.capabilities).how == "impossible"
    }
    assert impossible
    assert {name for name in impossible if expected(dialect, name) != "rejected"} == set()
