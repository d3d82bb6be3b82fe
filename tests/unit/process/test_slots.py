from __future__ import annotations

from pathlib import Path

import pytest

from streamer.errors import ConfigurationError
from streamer.process.slots import take_slot

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "streamer-work-7"}


def test_the_setting_wins_then_the_pods_ordinal(tmp_path: Path) -> None:
    assert take_slot(setting=3, name="work", folder=tmp_path, environ=POD).number == 3
    assert take_slot(setting=-1, name="work", folder=tmp_path, environ=POD).number == 7
    assert list(tmp_path.iterdir()) == []


def test_a_host_name_with_a_number_is_no_ordinal_outside_a_cluster(tmp_path: Path) -> None:
    environ = {"HOSTNAME": "build-agent-7"}

    assert take_slot(setting=-1, name="work", folder=tmp_path, environ=environ).number == 0


def test_lock_files_give_each_process_the_first_free_number(tmp_path: Path) -> None:
    taken = [take_slot(setting=-1, name="work", folder=tmp_path, environ={}) for _ in range(3)]
    other = take_slot(setting=-1, name="route", folder=tmp_path, environ={})

    taken[1].release()
    again = take_slot(setting=-1, name="work", folder=tmp_path, environ={})

    assert [slot.number for slot in taken] == [0, 1, 2]
    assert other.number == 0
    assert again.number == 1
    for slot in (*taken, other, again):
        slot.release()


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    with pytest.raises(ConfigurationError, match="slot"):
        take_slot(setting=-1, name="work", folder=blocked / "slots", environ={})
