"""``gateway plan-fleet``, run as users run it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from typer.testing import CliRunner

from gateway_ops.cli.root import app
from tests.warm_gateways import gateway

ENGINE = ("--slots", "16", "--token-ms", "1:10,16:20", "--prefill-rate", "20000")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway("plan-fleet", *arguments, folder=folder, COLUMNS="200", NO_COLOR="1")


def test_it_tells_the_fleet_and_where_each_figure_comes_from(tmp_path: Path) -> None:
    load = ("--rate", "12", "--prompt-tokens", "200-800", "--answer-tokens", "50-150", "--ttft", "0.5")
    done = run(tmp_path, *load, *ENGINE, "--output", "plan.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("12 requests/s: 3 Tritons and 1 spare\n2 gateways of 1 workers: ")
    assert "exhausted first" in done.stdout
    for source in ("--slots", "--token-ms", "--prefill-rate", "make bench MODE=requests"):
        assert source in done.stdout
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["tritons"] == {"needed": 3, "spare": 1, "cells": 1}
    assert written["time_to_first_token_ms"]["p95"] <= 500
    again = json.loads(run(tmp_path, *load, *ENGINE, "--json").stdout)
    assert again == written


def test_help_shows_ten_options_and_help_all_the_others(tmp_path: Path) -> None:
    shown = [
        set(re.findall(r"^│ (--[\w-]+)", run(tmp_path, each).stdout, re.MULTILINE)) for each in ("--help", "--help-all")
    ]
    assert shown[0] - {"--help", "--help-all"} == {
        "--rate", "--trace", "--prompt-tokens", "--answer-tokens", "--bench", "--slots", "--token-ms", "--prefill-rate",
        "--ttft", "--json",
    }  # fmt: skip
    assert shown[1] - shown[0] > {"--balance", "--shared-prefix", "--seed", "--output"}


def test_large_numbers_are_written_out(tmp_path: Path) -> None:
    done = run(tmp_path, "--rate", "1000000", *ENGINE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1,000,000 requests/s: ")
    assert "e+0" not in done.stdout


def test_what_cannot_be_planned_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text("{}\n{}\n")
    (tmp_path / "bench.json").write_text("{}")
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    for arguments, said in (
        ((), "give either --rate or --trace"),
        (("--rate", "1", "--trace", "trace.jsonl"), "give either --rate or --trace"),
        (("--rate", "1"), "the time of a prompt is unknown"),
        (("--rate", "1", "--bench", f"{tmp_path}/bench.json"), "bench.json is not a result of gateway bench"),
        (("--rate", "1", "--bench", f"{tmp_path}/none.json"), "none.json cannot be read"),
        (("--trace", f"{tmp_path}/trace.jsonl", *ENGINE), "line 1: at must be a number"),
        (("--rate", "1", "--prompt-tokens", "x", *ENGINE), "'x' is not a length"),
        (("--rate", "1", "--balance", "round_robin", *ENGINE), "Invalid value for '--balance'"),
        (("--rate", "1", "--transport", "http", *ENGINE), "Invalid value for '--transport'"),
        (("--rate", "1", "--arrivals", "never", *ENGINE), "Invalid value for '--arrivals'"),
        (("--rate", "1", "--ttft", "0.005", *ENGINE), "no number of Tritons meets the target"),
    ):
        done = runner.invoke(app, ["plan-fleet", *arguments])
        assert isinstance(done.exception, SystemExit), (arguments, done.exception)
        assert done.exit_code in {1, 2}
        assert said in done.output
