"""Where a setting may be said, and which word wins."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.config import RunConfig, load, parse_speed, to_toml
from replay.errors import ConfigError


def test_the_nearest_word_wins(tmp_path):
    user = tmp_path / "xdg" / "alert-replay"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('speed = "1"\nseed = 1\nhold = 1\npolicy = "final"\n')
    (tmp_path / "alert-replay.toml").write_text("speed = 2\nseed = 2\nhold = 2\n")
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "ALERT_REPLAY_SPEED": "3",
        "ALERT_REPLAY_SEED": "3",
    }
    config, origins = load({"speed": "4"}, environ, tmp_path)
    assert (config.speed, config.seed, config.hold, config.policy) == ("4", 3, 2.0, "final")
    assert origins["speed"] == "command line"
    assert origins["seed"] == "environment"
    assert origins["hold"].endswith("alert-replay.toml")
    assert origins["policy"].endswith("config.toml")
    assert origins["loop"] == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sped = 10", "there is no setting 'sped'.  Try: 'speed'"),
        ("seed = true", "seed is True, not a whole number."),
        ('hold = "long"', "hold: 'long' is not a duration.  Try: 90, 90s, 1.5m, 2h or 250ms"),
        ("detector = [1]", "detector is [1], not a list of texts."),
        ('lenient = "maybe"', "lenient is 'maybe', not true or false."),
        ("speed = 0", "speed '0' is not a positive number.  Try: --speed 10, or --speed max"),
        ('policy = "often"', "policy 'often' is none of ever, final."),
        ("hold = -1", "hold -1.0 is not a finite number of at least 0."),
        ("loop = 0", "loop 0 is not a finite number of at least 1."),
        ("start-offset = nan", "start-offset nan is not a finite number."),
        ("= 3", "cannot be read as TOML"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, text, message):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load({}, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path, file)
    assert message in str(raised.value)


def test_variables_of_other_rooms_are_theirs(tmp_path):
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "ALERT_REPLAY_KAFKA_USER": "me",
        "ALERT_REPLAY_HUB": "there",
        "ALERT_REPLAY_CACHE": "here",
    }
    assert load({}, environ, tmp_path)[0] == RunConfig()
    with pytest.raises(ConfigError, match="environment: there is no setting 'sped'"):
        load({}, {**environ, "ALERT_REPLAY_SPED": "1"}, tmp_path)


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read as TOML"):
        load({}, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path, tmp_path / "none.toml")


def test_a_value_that_does_not_fit_says_where_it_stands(tmp_path):
    (tmp_path / "alert-replay.toml").write_text('policy = "never"\n')
    with pytest.raises(ConfigError, match=r"alert-replay\.toml: policy 'never' is none of"):
        load({}, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(ConfigError, match="environment: speed 'zz' is not a positive number"):
        load({"policy": "ever"}, {"ALERT_REPLAY_SPEED": "zz"}, tmp_path)
    with pytest.raises(ConfigError, match=r"^speed .0. is not"):
        load({"policy": "ever", "speed": "0"}, {"ALERT_REPLAY_SPEED": "zz"}, tmp_path)


def test_the_folder_of_a_run_is_not_its_config(tmp_path):
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match=r"Is a directory\.  Try: .*/config\.toml$"):
        load({}, {}, tmp_path, tmp_path)


@pytest.mark.parametrize(
    "speed", ["0", "-1", "nan", "inf", "", "fast", 0, -3.0, math.inf, 1e308, "1e-300"]
)
def test_senseless_speeds(speed):
    with pytest.raises(ConfigError):
        parse_speed(speed)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
configs = st.builds(
    RunConfig,
    path=texts,
    jobs=st.lists(texts, max_size=3).map(tuple),
    detector=st.lists(texts, max_size=3).map(tuple),
    speed=st.sampled_from(["max", "10", "0.5"]),
    seed=st.integers(0, 2**60),
    hold=st.floats(0, 1e9),
    duration=st.none() | st.floats(0, 1e9),
    lenient=st.booleans(),
    node=texts,
)


@given(configs)
def test_round_trip(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("config")
    (folder / "c.toml").write_text(to_toml(config), encoding="utf-8", newline="")
    again, _ = load({}, {"XDG_CONFIG_HOME": str(folder)}, folder, folder / "c.toml")
    assert dataclasses.asdict(again) == dataclasses.asdict(config)
