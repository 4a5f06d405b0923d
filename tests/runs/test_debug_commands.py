"""Every debug command against a real run in which a page hangs: what it prints, its exit code, the same from a dump."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.debug import cli, dumps, screen, wording
from tests.debug_run import Debugged, debug, standing_still
from tests.gpu_process import ROOT
from tests.volume import wait_for

READING = [
    ["status"],
    ["watch", "--once"],
    ["show", "gpu"],
    ["pages"],
    ["page", "0001"],
    ["arena"],
    ["queues"],
    ["stack", "gpu"],
    ["events"],
    ["tail", "supervisor"],
    ["exits"],
    ["config"],
]


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory, clean_environment: Path) -> Iterator[Debugged]:
    with standing_still(tmp_path_factory.mktemp("hung")) as run:
        yield run


@pytest.fixture(scope="module")
def dumped(hung: Debugged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    said = hung.ask("dump", "-o", str(path))
    assert said.code == 0, said.err
    assert "read it with --from" in said.err
    return path


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_reading_command_answers_people_and_scripts_while_a_page_hangs(hung: Debugged, command: list[str]):
    people = hung.ask(*command)
    assert (people.code, people.err) == (0, "")
    assert people.out.strip()
    assert re.search(r"^snapshot \d+\.\d s old$", people.out, re.MULTILINE)
    scripts = hung.ask(*command, "--json")
    assert scripts.code == 0
    assert isinstance(scripts.json["age_s"], float)


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_dump_stands_for_the_run_in_every_reading_command(dumped: Path, hung: Debugged, command: list[str]):
    live, kept = hung.ask(*command, "--json").json, debug(*command, "--json", "--from", str(dumped))
    assert kept.code == 0, kept.err
    assert set(kept.json) == set(live)
    if command[0] in ("config", "page"):
        same = ("settings", "story", "page", "state", "lines")
        assert [kept.json.get(name) for name in same] == [live.get(name) for name in same]
    assert debug(*command, "--from", str(dumped)).out.strip()


def test_status_names_every_actor_and_says_how_the_run_stands(hung: Debugged):
    said = hung.ask("status", "--json").json
    rows = {row["actor"]: row for row in said["actors"]}
    assert list(rows) == ["fetcher", "gpu-0", "standby", "uploader"]
    assert rows["gpu-0"]["pages"][0] == "0003"
    assert rows["gpu-0"]["doing"].startswith("TextRecognition reader")
    assert rows["gpu-0"]["limit_s"] == 600
    assert all(row["pid"] in hung.running.children(name) for name, row in rows.items())
    assert said["run"]["done"] == 2
    assert said["run"]["sentence"] == "Pages are moving: 2 of 6 are done."
    assert 0 < said["run"]["rss_bytes"] < 60 << 20
    one = hung.ask("status", "uploader", "--json").json
    assert [row["actor"] for row in one["actors"]] == ["uploader"]


def test_status_says_by_its_exit_code_that_something_is_not_running(dumped: Path, tmp_path: Path):
    dump = json.loads(dumped.read_bytes())
    gpu = next(row for row in dump["actors"] if row["actor"] == "gpu-0")
    gpu |= {"ok": False, "state": "down"}
    path = tmp_path / "down.json"
    path.write_text(json.dumps(dump))
    assert debug("status", "--from", str(path)).code == 3
    assert debug("status", "gpu", "--from", str(path)).code == 3
    assert debug("status", "fetcher", "--from", str(path)).code == 0


def test_the_stack_of_a_hung_worker_names_page_step_and_model_and_shows_where_it_stands(hung: Debugged):
    said = hung.ask("stack", "gpu")
    assert said.code == 0, said.err
    first = said.out.splitlines()
    assert first[0].startswith("gpu-0#1 (pid ")
    assert re.fullmatch(r"  page 0003 is in TextRecognition reader 1/2, no progress for \S+, thread 0x\w+", first[1])
    stack = said.out.partition("<- 0003\n")[2].partition("\n\n")[0]
    assert "in _hang" in stack.splitlines()[0]
    assert next(line for line in said.out.splitlines() if "most recent call first" in line).endswith("<- 0003")
    again = hung.ask("stack", "gpu-0", "--json").json
    assert "in _hang" in again["stacks"]
    for other in ("fetcher", "uploader", "standby"):
        assert "most recent call first" in hung.ask("stack", other).out


def test_a_page_tells_its_whole_story_with_times_and_incarnations(hung: Debugged):
    story = hung.ask("page", "3", "--json").json["story"]
    assert [turn["state"] for turn in story] == ["fetching", "fetched", "decoding", "ready", "transcribing"]
    assert story[-1]["by"] == "gpu-0#1"
    assert story[-1]["lasted_s"] is None
    assert all(turn["lasted_s"] >= 0 for turn in story[:-1])
    assert [turn["at"] for turn in story] == sorted(turn["at"] for turn in story)
    text = hung.ask("page", "0003").out
    assert text.startswith("page 0003: transcribing for ")
    assert "in TextRecognition reader 1/2, no progress for" in text


def test_pages_are_listed_by_state_and_age(hung: Debugged):
    def names(*arguments: str) -> list[str]:
        return [row["page"] for row in hung.ask("pages", *arguments, "--json").json["pages"]]

    assert names() == ["0003", "0004", "0005", "0006"]
    assert names("--state", "ok") == ["0001", "0002"]
    assert "0003" in names("--state", "transcribing")
    assert names("--older", "0.01") == ["0003", "0004", "0005", "0006"]
    assert names("--older", "9999") == []
    wrong = hung.ask("pages", "--state", "lost")
    assert wrong.code == 2
    assert "there is no state 'lost'; there are waiting, fetching," in wrong.err


def test_the_arena_shows_whose_each_block_is(hung: Debugged):
    said = hung.ask("arena", "--json").json
    holders = {block["page"]: block["holder"] for block in said["blocks"]}
    assert set(holders) == {"0003", "0004", "0005", "0006"}
    assert holders["0003"] == "gpu-0#1"
    assert said["used_bytes"] >= sum(block["bytes"] for block in said["blocks"]) > 0


def test_config_says_where_each_value_came_from(hung: Debugged):
    settings = {s["name"]: s for s in hung.ask("config", "--json").json["settings"]}
    assert settings["PAGE_TIMEOUT_SECONDS"] == {"name": "PAGE_TIMEOUT_SECONDS", "value": "600", "source": "environment"}
    assert settings["UPLOAD_CONCURRENCY"]["source"] == "default"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["status", "printer"], 2, "there is no actor 'printer'; there are fetcher, gpu-0, standby, uploader"),
        (["tail", ""], 2, "there is no actor ''"),
        (["stack", "s"], 0, ""),
        (["page", "99"], 2, "nothing is known of page 0099: the volume has 6 pages"),
        (["page", "first"], 2, "'first' is not a page: expected its number, such as 412 or 0412"),
        (["retry", "99"], 2, "there is no page 0099; the volume has 6 pages"),
        (["retry", "1"], 2, "page 0001 is finished (ok)"),
        (["fail", "0001"], 2, "page 0001 is finished (ok)"),
        (["restart", "printer"], 2, "there is no actor 'printer'"),
        (["loglevel", "gpu", "LOUD"], 2, "there is no log level 'LOUD'; there are DEBUG, INFO,"),
        (["loglevel", "gpu", "debug"], 0, ""),
        (["explode"], 2, "invalid choice: 'explode'"),
        ([], 2, "COMMAND"),
        (["status", "--timeout", "0"], 2, "0 is not a number of seconds above 0"),
        (["status", "--socket", "/nowhere/supervisor.sock"], 4, "there is no socket at /nowhere/supervisor.sock"),
        (["watch"], 2, "watch needs a terminal"),
        (["status", "--from", "/nowhere"], 2, "/nowhere cannot be read: No such file or directory"),
        (["status", "--from", __file__], 2, "test_debug_commands.py is not a dump for this program: "),
        (["pages", "--older", "soon"], 2, "soon is not a number of seconds above 0"),
        (["events", "-n", "²"], 2, "² is not a number of lines"),
        (["tail", "gpu", "-f", "--from", "/nowhere"], 2, "a dump does not go on"),
        (["pause", "--from", "/nowhere"], 2, "unrecognized arguments"),
    ],
)
def test_a_wrong_word_is_answered_with_a_sentence_and_an_exit_code(
    hung: Debugged, command: list[str], code: int, says: str
):
    said = hung.ask(*command)
    assert (said.code, says in said.err) == (code, True), said
    assert hung.running.process.poll() is None


def test_a_problem_is_json_too_where_json_was_asked_for(hung: Debugged):
    said = hung.ask("page", "99", "--json")
    assert (said.code, said.json["exit"]) == (2, 2)
    assert said.json["error"].startswith("nothing is known of page 0099")


def test_the_probe_answers_and_tells_a_stopped_supervisor_from_a_dead_one(hung: Debugged):
    assert hung.ask("ping").code == 0
    hung.running.kill(signal.SIGSTOP)
    try:
        held_up = hung.ask("ping", "--timeout", "0.2")
        assert (held_up.code, held_up.err) == (0, "")
        assert "its loop last turned" in held_up.out
        old = wait_for(
            lambda: (s := hung.ask("ping", "--timeout", "0.2", "--max-loop-age", "0.5")).code == 3 and s, "an old loop"
        )
        assert "loop has not turned for" in old.err
        silent = hung.ask("status", "--timeout", "0.2")
        assert silent.code == 4
        assert "no answer from" in silent.err
    finally:
        hung.running.kill(signal.SIGCONT)
    assert hung.ask("ping", "--max-loop-age", "5", "--timeout", "20").code == 0


def test_a_stream_goes_on_with_what_is_new(hung: Debugged):
    command = [sys.executable, "-m", "supervisor", "events", "-f", "-n", "1", "--json", "--socket", str(hung.socket)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert len(first["events"]) == 1
        hung.ask("loglevel", "uploader", "WARNING")
        new = next(e for line in following.stdout for e in json.loads(line)["events"] if e["kind"] == "command")
        assert new["number"] > first["events"][0]["number"]
        assert f"uid {os.geteuid()} (pid " in new["text"]
        following.terminate()


def test_an_actors_lines_can_be_followed(hung: Debugged):
    command = [sys.executable, "-m", "supervisor", "tail", "supervisor", "-f", "-n", "1", "--socket", str(hung.socket)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline()
        hung.ask("loglevel", "uploader", "ERROR")
        assert any("uploader logs at ERROR until it is restarted" in line for line in following.stdout)
        following.terminate()


@pytest.mark.parametrize("width", [20, 40, 79, 80, 100, 160, 200])
def test_the_screen_keeps_to_any_width_and_drops_columns_from_the_right(hung: Debugged, width: int):
    data = hung.ask("watch", "--once", "--json").json
    lines = screen.draw(data, 0.1, width)
    assert all(len(line) <= width for line in lines)
    titles = next(line.plain.split() for line in lines if line.plain.startswith("ACTOR"))
    every = [word for column in screen.COLUMNS for word in column.title.split()]
    assert titles == every[: len(titles)]
    if width >= 80:
        assert "LIMIT" in titles
    if width >= 160:
        assert titles == every


def test_durations_are_coloured_by_their_share_of_the_limit_and_old_snapshots_are_red(hung: Debugged):
    data = hung.ask("watch", "--once", "--json").json
    row = next(row for row in data["actors"] if row["actor"] == "gpu-0")

    def colour(for_s: float) -> str:
        row["for_s"] = for_s
        line = next(line for line in screen.draw(data, 0.0, 160) if line.plain.startswith("gpu-0"))
        shown = f"{for_s:.0f}s"
        return next((str(s.style) for s in line.spans if line.plain[s.start : s.end].strip() == shown), "")

    assert [colour(s) for s in (299, 300, 479, 480)] == ["", "yellow", "yellow", "bold red"]
    assert not any("old" in line.plain for line in screen.draw(data, 2.0, 160))
    stale = screen.draw(data, 3.0, 160)[-1]
    assert stale.plain.startswith("this snapshot is 3.0 s old")
    assert stale.style == "bold red"


def test_fifty_clients_and_garbage_do_not_disturb_the_run(hung: Debugged):
    import socket

    with ExitStack() as stack:
        for _ in range(50):
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.connect(str(hung.socket))
            made.setblocking(False)
            made.send(b"\xff\xff\xff\xff" + b"x" * 100)
        wait_for(lambda: hung.ask("status").code == 0, "an answer beside them", running=hung.running)
    assert hung.ask("ping").code == 0


def test_the_screen_shows_nothing_that_would_act_on_a_terminal():
    shown = wording.printable({"lines": ["\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b5m\r åäö\tx\n"]})
    assert shown == {"lines": ["red \\x1b]0;title\\x07 \\x9b5m\\x0d åäö\tx\n"]}


def test_long_lines_of_output_are_left_whole_for_grep(dumped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, line = tmp_path / "long.json", "word " * 100 + "end"
    dump = json.loads(dumped.read_bytes())
    path.write_text(json.dumps(dump | {"tails": {**dump["tails"], "gpu-0": [line]}}))
    assert cli.main(["tail", "gpu", "--from", str(path)]) == 0
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "name", ["run", "actors", "queues", "arena", "config", "events", "exits", "tails", "limits", "pages"]
)
@pytest.mark.parametrize("wrong", [None, [1], {"at": 1e300}, [{"at": 1e18}]])
def test_a_damaged_dump_is_said_to_be_one_or_shows_what_is_left_of_it(
    dumped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, wrong: Any
):
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(json.loads(dumped.read_bytes()) | {name: wrong}))
    for command in READING:
        code = cli.main([*command, "--from", str(path)])
        said = capsys.readouterr()
        assert code in (0, 2, 3)
        assert said.out.strip() if code == 0 else said.err.strip()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a dump for this program: "),
        (b"\x00\xff", "is not a dump for this program: "),
        (b"[" * 100_000, "is not a dump for this program: "),
        (b"{}", "neither `batchpod-debug dump` nor a failed run has written it"),
        (b" " * (dumps.MAX_BYTES + 1), "it is larger than 64 MiB"),
    ],
    ids=["empty", "binary", "deep", "foreign", "huge"],
)
def test_a_file_that_is_no_dump_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
):
    path = tmp_path / "other.json"
    path.write_bytes(content)
    assert cli.main(["status", "--from", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_dump_of_another_protocol_is_not_guessed_at(dumped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "old.json"
    path.write_text(json.dumps(json.loads(dumped.read_bytes()) | {"protocol": 0}))
    assert cli.main(["status", "--from", str(path)]) == 2
    assert "it is of protocol 0, not of 1: use the batchpod-debug of the image" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shell", "code", "says"),
    [
        ("config | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("status --json | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("dump | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("status >&-", 0, ""),
        ("ping >&- 2>&-", 0, ""),
        ("status >/dev/full", 2, "the answer cannot be written to stdout: No space left on device\n"),
        ("status --json >/dev/full", 2, "the answer cannot be written to stdout: No space left on device\n"),
        ("page $'\\xff'", 2, "'?' is not a page: expected its number, such as 412 or 0412\n"),
        ("status $'\\xff'", 2, "there is no actor '?'; there are fetcher, gpu-0, standby, uploader\n"),
        ("loglevel gpu $'\\xff' --json", 2, ""),
    ],
)
def test_an_odd_stdout_or_argument_is_no_traceback(hung: Debugged, shell: str, code: int, says: str):
    line = f"{sys.executable} -m supervisor {shell}"
    environ = {**os.environ, "WORKDIR_PATH": str(hung.volume.workdir)}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, says)


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"TERM": "", "COLUMNS": "banana", "NO_COLOR": "1"},
    ],
    ids=["locale C", "ascii", "no terminal"],
)
def test_a_poor_environment_is_enough(hung: Debugged, environ: dict[str, str]):
    for command in (["status"], ["watch", "--once"], ["stack", "gpu"]):
        said = hung.ask(*command, **environ)
        assert (said.code, said.err) == (0, "")


def test_no_run_no_answer(tmp_path: Path):
    said = debug("status", WORKDIR_PATH=str(tmp_path))
    assert said.code == 4
    assert f"there is no socket at {tmp_path}/supervisor.sock: no run is working in WORKDIR_PATH" in said.err


def test_the_words_of_help_cover_every_command():
    text = debug("--help").out
    served = {command[0] for command in READING} | set(cli.ACTING) | {"dump", "ping"}
    assert served <= set(text.split())
