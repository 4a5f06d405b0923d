"""What a person tells a run through the debug socket, and what the run does then; and what a failed run leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.debug_run import debug, debugged
from tests.volume import wait_for
from tools.origin import status

WHO = f"uid {os.geteuid()}"


def outcomes(store: Any, prefix: str) -> dict[str, str]:
    manifest = json.loads(store.objects[f"{prefix}/manifest.json"].body)
    return {name: result["status"] for name, result in manifest["results"].items()}


def hangs(said: Any, page: str) -> bool:
    """Whether a gpu process is inside this page and has been for a moment."""
    return any(page in row["pages"][:1] and (row["for_s"] or 0) > 0.5 for row in said["actors"])


def test_a_hung_page_is_given_up_and_the_others_come_out(tmp_path: Path):
    with debugged(tmp_path, faults={"0002": "hang"}, GPU_PAGES="1") as run:
        run.until("the hang", ["status"], lambda said: hangs(said, "0002"))
        said = run.ask("fail", "2")
        assert (said.code, said.out) == (0, "page 0002 was transcribing and is given up\n")
        ended = run.running.end()
    assert ended.code == 0, ended.log
    assert f"page 0002 failed: given up by {WHO}" in ended.log
    assert f"{WHO} (pid " in ended.log
    assert "has asked: page 0002 was transcribing and is given up" in ended.log
    expected = dict.fromkeys((f"{n:04d}" for n in range(1, 7)), "ok") | {"0002": "failed"}
    assert outcomes(run.store, run.volume.prefix) == expected
    assert run.volume.left_in_workdir() == set()


def test_a_hung_page_is_put_back_and_every_page_comes_out(tmp_path: Path):
    with debugged(tmp_path, faults={"0002": "once:hang"}, GPU_PAGES="1") as run:
        run.until("the hang", ["status"], lambda said: hangs(said, "0002"))
        assert run.ask("retry", "0002").out == "page 0002 was transcribing and is put back\n"
        ended = run.running.end()
    assert ended.code == 0, ended.log
    assert set(outcomes(run.store, run.volume.prefix).values()) == {"ok"}, ended.log
    assert f"{WHO} asks for page 0002 again" in ended.log


def test_a_paused_run_hands_out_nothing_until_it_is_resumed(tmp_path: Path):
    with debugged(tmp_path, faults={"*": "slow:0.5"}, GPU_PAGES="1") as run:
        run.until("a page", ["status"], lambda said: said["run"]["done"] >= 1)
        assert run.ask("pause").code == 0
        said = run.until("an idle gpu", ["status"], lambda said: not any(r["pages"] for r in said["actors"][1:2]))
        assert said["run"]["paused"]
        assert said["run"]["sentence"].startswith("Paused by a person")
        assert "Paused by a person" in run.ask("watch", "--once").out
        done = said["run"]["done"]
        assert run.until("later", ["status"], lambda later: later["run"]["elapsed_s"] > said["run"]["elapsed_s"] + 1)
        assert run.ask("status", "--json").json["run"]["done"] <= done + 1
        assert run.ask("resume").code == 0
        ended = run.running.end()
    assert ended.code == 0, ended.log
    assert set(outcomes(run.store, run.volume.prefix).values()) == {"ok"}, ended.log


def test_every_actor_is_restarted_on_request_and_no_page_is_lost(tmp_path: Path):
    with debugged(tmp_path, pages=8, faults={"*": "slow:0.6"}, GPU_PAGES="1", GPU_STANDBY="true") as run:
        run.until("a page", ["status"], lambda said: said["run"]["done"] >= 1)
        for actor, more in (("gpu", []), ("uploader", []), ("fetcher", ["--now"]), ("gpu-0", ["--now"])):
            said = wait_for(
                lambda a=actor, m=more: (s := run.ask("restart", a, *m)).code == 0 and s, actor, running=run.running
            )
            assert "is restarted" in said.out
        ended = run.running.end()
    assert ended.code == 0, ended.log
    assert set(outcomes(run.store, run.volume.prefix).values()) == {"ok"}, ended.log
    for actor in ("gpu-0", "uploader", "fetcher"):
        assert f"{actor}#2 " in ended.log
    assert ended.log.count(f"{WHO} asks for a restart") >= 4
    assert "stacks of fetcher#1 before it was killed" in ended.log


def test_restarts_that_a_person_asks_for_count_against_no_limit(tmp_path: Path):
    with debugged(tmp_path, faults={"*": "slow:0.6"}, GPU_PAGES="1") as run:
        run.until("a page", ["status"], lambda said: said["run"]["done"] >= 1)
        for _ in range(7):
            wait_for(lambda: run.ask("restart", "uploader", "--now").code == 0, "an uploader", running=run.running)
        ended = run.running.end()
    assert ended.code == 0, ended.log
    assert "uploader#8 started" in ended.log


def test_stop_ends_the_run_as_sigterm_does_and_its_dump_is_left_in_the_bucket(tmp_path: Path):
    with debugged(tmp_path, faults={"0002": "hang"}) as run:
        run.until("the hang", ["status"], lambda said: hangs(said, "0002"))
        assert run.ask("stack", "gpu").code == 0
        assert run.ask("stop").code == 0
        ended = run.running.end()
    assert ended.code == 143, ended.log
    assert ended.message == {"stage": "stream", "permanent": False, "error": "SIGTERM"}
    assert ended.last_line.startswith("transient failure in stream: SIGTERM")
    assert "has asked: stopped: the run ends as after a SIGTERM" in ended.log
    stored = run.store.objects[f"status/dumps/test-recipe/{run.volume.ref}.json"]
    assert stored.headers["content-type"] == "application/json"
    assert len(stored.body) <= 1 << 20
    path = tmp_path / "dump.json"
    path.write_bytes(stored.body)
    shown = debug("status", "--json", "--from", str(path)).json
    assert shown["run"]["failure"] == "SIGTERM"
    assert [row["state"] for row in shown["actors"]] == ["running"] * 3
    assert debug("page", "2", "--json", "--from", str(path)).json["state"] == "transcribing"
    assert "in _hang" in debug("stack", "gpu", "--from", str(path)).out
    assert debug("exits", "--from", str(path)).code == 0


def test_a_dump_holds_no_credentials(tmp_path: Path):
    with debugged(tmp_path, origin_faults={"images": status(503)}, DOWNLOAD_CONCURRENCY="2") as run:
        secret = "https://user:pass-word@images.example/a.jpg?token=s3cr3t&w=1"
        ended = run.running.end()
        again = run.volume.start(IIIF_MANIFEST_URL="", IMAGES=secret, FETCH_ALLOW_PRIVATE="false").end()
    assert ended.code == 1, ended.log
    assert again.code == 1, again.log
    body = run.store.objects[f"status/dumps/test-recipe/{run.volume.ref}.json"].body.decode()
    assert "images.example/a.jpg" in body
    assert "s3cr3t" not in body
    assert "pass-word" not in body
    assert json.loads(body)["run"]["failure"]


def test_a_run_that_is_ending_over_a_dead_store_still_answers_and_takes_no_orders(tmp_path: Path):
    with debugged(tmp_path, faults={"0002": "hang"}) as run:
        run.until("the hang", ["status"], lambda said: hangs(said, "0002"))
        run.store.faults.black_hole = True
        assert run.ask("ping").code == 0
        assert run.ask("stop").code == 0
        said = wait_for(lambda: (s := run.ask("status", "--json").json)["run"]["ending"] and s, "the ending")
        assert said["run"]["sentence"] == "The run has failed in stage stream and is ending: SIGTERM"
        closed = run.until("an end of the gpu", ["status"], lambda said: said["actors"][1]["state"] == "closed")
        assert closed["actors"][1]["pages"] == []
        for command in ("page 2", "pages", "events", "exits", "tail gpu", "arena", "queues", "dump"):
            assert run.ask(*command.split()).code == 0, command
        for order in ("pause", "restart gpu", "retry 2", "fail 2", "loglevel gpu INFO", "stop"):
            refused = run.ask(*order.split())
            assert refused.code == 2, order
            assert "the run is ending in stage stream: nothing can be changed" in refused.err
        gone = run.ask("stack", "gpu")
        assert gone.code == 3
        assert "gpu-0 has no process now" in gone.err
        assert run.ask("ping").code == 0


def test_a_load_that_hangs_is_seen_and_can_be_stopped(tmp_path: Path):
    with debugged(tmp_path, reader={"load_error": "hang"}, GPU_LOAD_SECONDS="900", LOOKAHEAD_PAGES="2") as run:
        said = run.until("the load", ["status"], lambda said: any(row["state"] == "loading" for row in said["actors"]))
        gpu = next(row for row in said["actors"] if row["actor"] == "gpu-0")
        assert gpu["limit_s"] == 900
        assert gpu["ok"]
        hung = wait_for(
            lambda: (s := run.ask("stack", "gpu").out).count("in _hang") and s, "the place", running=run.running
        )
        assert "is in load" in hung.splitlines()[1]
        assert run.ask("retry", "1").code == 0
        waiting = run.ask("page", "6").out
        assert waiting.startswith("page 0006: waiting for ")
        assert run.ask("restart", "gpu").out == "gpu-0 is restarted at once (it was loading)\n"
        run.until("the next start", ["exits"], lambda said: said["exits"])
        assert run.ask("stop").code == 0
        ended = run.running.end()
    assert (ended.code, ended.message and ended.message["stage"]) == (143, "load"), ended.log


def test_exit_records_say_how_when_and_with_what_in_hand(tmp_path: Path):
    with debugged(tmp_path, faults={"0002": "segv", "0005": "slow:3"}, GPU_PAGES="1") as run:
        said = run.until("two deaths", ["exits"], lambda said: len(said["exits"]) >= 2)
        exits = [e for e in said["exits"] if e["actor"] == "gpu-0"]
        assert {e["signal"] for e in exits[:2]} == {"SIGSEGV"}
        assert all("0002" in e["pages"] for e in exits[:2])
        assert all(e["rss_bytes"] is None or e["rss_bytes"] > 0 for e in exits)
        shown = run.ask("show", "gpu", "--json").json
        assert {"spawn", "exit"} <= {e["kind"] for e in shown["transitions"]}
        assert shown["exits"][0]["how"] == "killed by signal 11 (SIGSEGV)"
        ended = run.running.end()
    assert ended.code == 0, ended.log


def test_a_run_in_a_deep_working_directory_is_found_and_leaves_no_socket(tmp_path: Path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with debugged(tmp_path, faults={"0002": "hang"}, WORKDIR_PATH=str(deep)) as run:
        wait_for(lambda: debug("ping", WORKDIR_PATH=str(deep)).code == 0, "an answer", running=run.running)
        assert debug("status", "--socket", str(deep)).code == 0
        assert debug("stop", WORKDIR_PATH=str(deep)).code == 0
        assert run.running.end().code == 143
    assert debug("ping", WORKDIR_PATH=str(deep)).code == 4
