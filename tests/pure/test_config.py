"""What the environment means: every form, every rule between variables, all problems at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpod import __version__
from batchpod.errors import ConfigError
from batchpod.settings import environment
from batchpod.settings.config import Config, arena_problem
from batchpod.settings.environment import VARIABLES, Command
from supervisor.memory import Memory


@pytest.fixture
def good(tmp_path: Path) -> dict[str, str]:
    """The least that describes a run."""
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("steps: []")
    (tmp_path / "work").mkdir()
    return {
        "VOLUME_REF": "R0001203",
        "IIIF_MANIFEST_URL": "https://iiif.example/R0001203/manifest.json",
        "PIPELINE_PATH": str(pipeline),
        "PIPELINE_ID": "swedish-1.2",
        "S3_BUCKET": "results",
        "RESULTS_URL": "https://results.example/files/",
        "WORKDIR_PATH": str(tmp_path / "work"),
    }


def problems_of(environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        Config.from_env(environ)
    assert raised.value.stage == "config"
    assert str(raised.value) == "; ".join(raised.value.problems)
    return raised.value.problems


def test_every_default_is_the_contract_s(good: dict[str, str]) -> None:
    config = Config.from_env(good)
    assert config.max_image_width == 2500
    assert config.resume is True
    assert config.max_pages == 0
    assert (config.lookahead_pages, config.lookahead_bytes) == (64, 1 << 30)
    assert (config.download_concurrency, config.download_deadline_s) == (12, 300)
    assert (config.manifest_max_bytes, config.fetch_max_bytes) == (16 << 20, 64 << 20)
    assert config.max_image_pixels == 100_000_000
    assert (config.empty_canvas, config.image_cache_bucket) == ("refuse", None)
    assert (config.page_timeout_s, config.gpu_start_s, config.gpu_load_s) == (600, 300, 900)
    assert (config.gpu_workers, config.gpu_pages, config.gpu_standby) == (1, 2, True)
    assert (config.pixel_arena_bytes, config.upload_backlog_bytes) == (512 << 20, 256 << 20)
    assert (config.upload_concurrency, config.log_ship_s) == (4, 15)
    assert config.user_agent == f"batchpod/{__version__}"
    assert (config.fetch_allow_private, config.s3_verify_tls, config.hf_hub_offline) == (True, True, False)
    assert (config.s3_endpoint, config.s3_prefix) == (None, "")
    assert (config.image_digest, config.htrflow_base_revision) == ("unknown", "unknown")
    assert config.termination_log_path == "/dev/termination-log"
    assert config.images == ()


def test_every_variable_of_the_table_is_a_field_and_a_setting(good: dict[str, str]) -> None:
    config = Config.from_env(good)
    names = {v.field for v in VARIABLES if Command.RUN in v.commands}
    assert names == {f.name for f in dataclasses.fields(Config)} - {"settings"}
    assert [s.name for s in config.settings] == [v.name for v in VARIABLES if Command.RUN in v.commands]


def test_an_empty_environment_names_everything_that_is_required() -> None:
    problems = problems_of({})
    for name in (
        "VOLUME_REF",
        "IIIF_MANIFEST_URL",
        "IMAGES",
        "PIPELINE_PATH",
        "PIPELINE_ID",
        "S3_BUCKET",
        "RESULTS_URL",
    ):
        assert any(name in p and "expected" in p for p in problems), name


def test_all_problems_are_named_at_once(good: dict[str, str]) -> None:
    bad = {
        "MAX_PAGES": "-1",
        "RESUME": "maybe",
        "LOOKAHEAD_BYTES": "1GB",
        "GPU_WORKERS": "0",
        "S3_BUCKET": "",
    }
    problems = problems_of(good | bad)
    assert len(problems) == len(bad)
    for name in bad:
        assert any(p.startswith(name) and ": expected " in p for p in problems), name


def test_an_empty_string_counts_as_unset(good: dict[str, str]) -> None:
    empty = {v.name: "" for v in VARIABLES if v.name not in good}
    assert dataclasses.replace(Config.from_env(good | empty), settings=()) == dataclasses.replace(
        Config.from_env(good), settings=()
    )


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [("1", 1), ("4096", 4096), ("2Ki", 2048), ("16Mi", 16 << 20), ("1Gi", 1 << 30), (" 5Mi ", 5 << 20)],
)
def test_a_size_is_plain_bytes_or_has_a_binary_suffix(good: dict[str, str], value: str, size_bytes: int) -> None:
    assert Config.from_env(good | {"FETCH_MAX_BYTES": value}).fetch_max_bytes == size_bytes


@pytest.mark.parametrize("value", ["0", "-1", "1.5Gi", "1G", "1GB", "1gi", "Gi", "1e9", "٣", "1_000", "9" * 5000])
def test_another_size_is_refused(good: dict[str, str], value: str) -> None:
    (problem,) = problems_of(good | {"FETCH_MAX_BYTES": value})
    assert problem.startswith("FETCH_MAX_BYTES=")
    assert "Ki, Mi or Gi" in problem
    assert len(problem) < 300


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE", "Yes", "oN"])
def test_true_has_four_words_in_any_case(good: dict[str, str], word: str) -> None:
    assert Config.from_env(good | {"S3_VERIFY_TLS": word}).s3_verify_tls is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "FALSE", "No", "oFF"])
def test_false_has_four_words_in_any_case(good: dict[str, str], word: str) -> None:
    assert Config.from_env(good | {"RESUME": word}).resume is False


@pytest.mark.parametrize("value", ["0", "-3", "1.0", "two", "1 2", "+1"])
def test_a_count_is_a_whole_number_of_at_least_1(good: dict[str, str], value: str) -> None:
    (problem,) = problems_of(good | {"LOOKAHEAD_PAGES": value})
    assert "a whole number of at least 1" in problem


@pytest.mark.parametrize("name", ["UPLOAD_CONCURRENCY", "DOWNLOAD_CONCURRENCY", "GPU_WORKERS", "GPU_PAGES"])
@pytest.mark.parametrize("value", ["0", "1001", "200000"])
def test_what_runs_at_once_is_bounded(good: dict[str, str], name: str, value: str) -> None:
    (problem,) = problems_of(good | {name: value})
    assert problem == f"{name}={value}: expected a whole number from 1 to 1000"


def test_a_size_beyond_any_file_is_refused(good: dict[str, str]) -> None:
    (problem,) = problems_of(good | {"PIXEL_ARENA_BYTES": "999999999999999Gi"})
    assert "from 1 to 2^63" in problem


def test_without_a_memory_limit_the_arena_must_fit_the_machine(good: dict[str, str]) -> None:
    config = Config.from_env(good | {"PIXEL_ARENA_BYTES": "900000Gi"})
    assert "expected less than this machine's memory" in (arena_problem(config, None) or "")


@pytest.mark.parametrize("name", ["MAX_PAGES", "MAX_IMAGE_PIXELS", "LOG_SHIP_SECONDS", "INDEX_FAILURE_COUNT"])
def test_some_counts_and_seconds_may_be_0(good: dict[str, str], name: str) -> None:
    assert getattr(Config.from_env(good | {name: "0"}), environment.BY_NAME[name].field) == 0


def test_seconds_may_have_a_fraction(good: dict[str, str]) -> None:
    assert Config.from_env(good | {"PAGE_TIMEOUT_SECONDS": "0.25"}).page_timeout_s == 0.25


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e3", "5s", "0.0"])
def test_other_seconds_are_refused(good: dict[str, str], value: str) -> None:
    (problem,) = problems_of(good | {"DOWNLOAD_DEADLINE_SECONDS": value})
    assert "a number of seconds above 0" in problem


@pytest.mark.parametrize("name", ["VOLUME_REF", "PIPELINE_ID"])
@pytest.mark.parametrize("value", ["a/b", ".", "..", "a..b", "å", "a b", "a\n", "a\n\nb", "*", "../x"])
def test_an_id_that_cannot_be_a_key_segment_is_refused(good: dict[str, str], name: str, value: str) -> None:
    (problem,) = problems_of(good | {name: value})
    assert problem.startswith(f"{name}=")
    assert "\n" not in problem


@pytest.mark.parametrize("value", ["A-0068_1.x", "...", "a.b.c"])
def test_ids_of_letters_digits_dots_and_dashes_are_taken(good: dict[str, str], value: str) -> None:
    if ".." in value:
        problems_of(good | {"VOLUME_REF": value})
    else:
        assert Config.from_env(good | {"VOLUME_REF": value}).volume_ref == value


def test_exactly_one_source_is_expected(good: dict[str, str]) -> None:
    assert "both set" in problems_of(good | {"IMAGES": "http://h/1.jpg"})[0]
    assert "exactly one" in problems_of(good | {"IIIF_MANIFEST_URL": ""})[0]


def test_images_are_separated_by_any_white_space(good: dict[str, str]) -> None:
    images = " http://h/1.jpg\n\thttps://h/2.jpg?sig=s  \nhttp://h/3%2F.jpg "
    config = Config.from_env(good | {"IIIF_MANIFEST_URL": "", "IMAGES": images})
    assert config.images == ("http://h/1.jpg", "https://h/2.jpg?sig=s", "http://h/3%2F.jpg")
    assert config.iiif_manifest_url is None


@pytest.mark.parametrize(
    "url", ["ftp://h/1.jpg", "file:///etc/passwd", "h/1.jpg", "http://", "https:///x", "http://[h"]
)
@pytest.mark.parametrize("name", ["IIIF_MANIFEST_URL", "IMAGES"])
def test_a_source_that_is_not_http_is_refused(good: dict[str, str], name: str, url: str) -> None:
    good = {n: v for n, v in good.items() if n != "IIIF_MANIFEST_URL"}
    (problem,) = problems_of(good | {name: f"http://h/0.jpg {url}" if name == "IMAGES" else url})
    assert problem.startswith(f"{name}={url}")


def test_a_problem_shows_no_credentials(good: dict[str, str]) -> None:
    problems = problems_of(good | {"RESULTS_URL": "ftp://user:secret@h/x?token=hush"})
    assert "secret" not in str(problems)
    assert "hush" not in str(problems)


def test_the_settings_show_where_each_value_comes_from_and_no_credentials(good: dict[str, str]) -> None:
    url = "https://user:secret@h/m.json?token=hush"
    settings = {s.name: s for s in Config.from_env(good | {"IIIF_MANIFEST_URL": url}).settings}
    assert (settings["IIIF_MANIFEST_URL"].value, settings["IIIF_MANIFEST_URL"].source) == (
        "https://h/m.json",
        "environment",
    )
    assert (settings["LOOKAHEAD_BYTES"].value, settings["LOOKAHEAD_BYTES"].source) == ("1Gi", "default")
    assert (settings["S3_ENDPOINT"].value, settings["S3_ENDPOINT"].source) == ("", "default")


@pytest.mark.parametrize("prefix", ["tenant", "/tenant/", "//tenant"])
def test_the_result_prefix_has_no_slash_at_its_ends(good: dict[str, str], prefix: str) -> None:
    assert Config.from_env(good | {"S3_PREFIX": prefix}).result_prefix == "tenant/swedish-1.2/R0001203"
    assert Config.from_env(good | {"S3_PREFIX": "/"}).result_prefix == "swedish-1.2/R0001203"


def test_the_viewer_url_encodes_each_segment(good: dict[str, str]) -> None:
    url = Config.from_env(good | {"S3_PREFIX": "räknor #1/b"}).viewer_url
    assert url == "https://results.example/files/r%C3%A4knor%20%231/b/swedish-1.2/R0001203/iiif.json"


@pytest.mark.parametrize(
    ("count", "limit", "last"),
    [
        ("", "", False),
        ("3", "", False),
        ("", "3", False),
        ("2", "3", False),
        ("3", "3", True),
        ("4", "3", True),
        ("0", "0", True),
    ],
)
def test_the_last_attempt_is_known_when_both_counts_are(
    good: dict[str, str], count: str, limit: str, last: bool
) -> None:
    counts = {"INDEX_FAILURE_COUNT": count, "BACKOFF_LIMIT_PER_INDEX": limit}
    assert Config.from_env(good | counts).last_attempt is last


def test_a_pipeline_that_is_no_readable_file_is_refused(good: dict[str, str], tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "not a file")):
        (problem,) = problems_of(good | {"PIPELINE_PATH": str(path)})
        assert problem.startswith("PIPELINE_PATH=")
        assert said in problem


def test_a_workdir_that_does_not_exist_is_refused(good: dict[str, str], tmp_path: Path) -> None:
    (problem,) = problems_of(good | {"WORKDIR_PATH": str(tmp_path / "gone")})
    assert problem.startswith("WORKDIR_PATH=")


def test_a_bad_index_without_volumes_path_is_ignored(good: dict[str, str]) -> None:
    config = Config.from_env(good | {"JOB_COMPLETION_INDEX": "what"})
    assert config.job_completion_index is None
    assert {s.name: s for s in config.settings}["JOB_COMPLETION_INDEX"].source == "default"


def from_file(good: dict[str, str], path: Path, index: str) -> dict[str, str]:
    return {n: v for n, v in good.items() if n not in ("VOLUME_REF", "IIIF_MANIFEST_URL")} | {
        "VOLUMES_PATH": str(path),
        "JOB_COMPLETION_INDEX": index,
    }


def test_a_run_takes_its_own_line_of_volumes_txt(good: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "volumes.txt"
    path.write_text("A\thttps://h/a.json\nB\timages:http://h/1.jpg http://h/2.jpg?key=hush\n")
    first, second = (Config.from_env(from_file(good, path, index)) for index in "01")
    assert (first.volume_ref, first.iiif_manifest_url, first.images) == ("A", "https://h/a.json", ())
    assert (second.volume_ref, second.iiif_manifest_url) == ("B", None)
    assert second.images == ("http://h/1.jpg", "http://h/2.jpg?key=hush")
    shown = {s.name: (s.value, s.source) for s in second.settings}
    assert shown["VOLUME_REF"] == ("B", "volumes.txt")
    assert shown["IMAGES"] == ("http://h/1.jpg http://h/2.jpg", "volumes.txt")


def test_with_volumes_path_nothing_else_may_name_the_volume(good: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "volumes.txt"
    path.write_text("A\thttps://h/a.json\n")
    problems = problems_of(good | {"VOLUMES_PATH": str(path)})
    assert any(p.startswith("VOLUME_REF") for p in problems)
    assert any(p.startswith("IIIF_MANIFEST_URL") for p in problems)
    assert any(p.startswith("JOB_COMPLETION_INDEX is not set") for p in problems)


@pytest.mark.parametrize("index", ["-1", "1.5", "x"])
def test_an_index_that_is_no_number_is_refused(good: dict[str, str], tmp_path: Path, index: str) -> None:
    path = tmp_path / "volumes.txt"
    path.write_text("A\thttps://h/a.json\n")
    (problem,) = problems_of(from_file(good, path, index))
    assert problem.startswith("JOB_COMPLETION_INDEX=")


def test_a_missing_line_is_said_beside_the_other_problems(good: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "volumes.txt"
    path.write_text("A\thttps://h/a.json\n")
    problems = problems_of(from_file(good, path, "1") | {"S3_BUCKET": ""})
    assert any("no volume for index 1" in p and "VOLUMES_PATH" in p for p in problems)
    assert any("S3_BUCKET" in p for p in problems)


def test_an_arena_over_the_memory_that_is_left_is_a_problem(good: dict[str, str]) -> None:
    config = Config.from_env(good)
    assert arena_problem(config, None) is None
    assert arena_problem(config, Memory(1 << 30, 512 << 20)) is None
    assert "PIXEL_ARENA_BYTES" in str(arena_problem(config, Memory(1 << 30, (512 << 20) + 1)))


def test_near_misses_are_named_and_strangers_are_not() -> None:
    environ = {
        "LOOKAHEAD_PAGE": "1",
        "S3_BUCKETS": "b",
        "max_pages": "1",
        "HOME": "/h",
        "PATH": "/bin",
        "AWS_REGION": "r",
    }
    said = " ".join(environment.near_misses(environ))
    for near, meant in (
        ("LOOKAHEAD_PAGE", "LOOKAHEAD_PAGES"),
        ("S3_BUCKETS", "S3_BUCKET"),
        ("max_pages", "MAX_PAGES"),
    ):
        assert f"{near} is set but nothing reads it: is {meant} meant?" in said
    assert not any(name in said for name in ("HOME", "PATH", "AWS_REGION"))


def test_help_shows_the_defaults_that_the_code_uses() -> None:
    text = environment.help_text(Command.RUN)
    for variable in VARIABLES:
        if Command.RUN in variable.commands:
            line = next(line for line in text.splitlines() if line.split()[0] == variable.name)
            assert not variable.default or f"[default: {variable.default}]" in line


@given(st.dictionaries(st.sampled_from(sorted(environment.BY_NAME)), st.text(), min_size=1))
def test_no_value_can_do_more_than_be_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:  # The least that a run needs is never complete here.
        Config.from_env({n: v for n, v in environ.items() if n != "S3_BUCKET"})
    raised.value.error.encode()
    assert "\n" not in raised.value.error
