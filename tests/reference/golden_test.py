"""The golden files are exactly what the executable definition writes."""

import numpy as np
import pytest

from conftest import ROOT
from halfbyte_reference import container, golden

GOLDEN = ROOT / "tests" / "golden"


@pytest.mark.parametrize("topic", sorted(golden.TOPICS))
def test_regenerating_gives_the_same_bytes(topic, tmp_path):
    path = tmp_path / f"{topic}.hbg"
    golden.TOPICS[topic]().save(path)
    stored = GOLDEN / f"{topic}.hbg"
    assert path.read_bytes() == stored.read_bytes(), (
        f"{stored} is not what halfbyte_reference writes; if the definition changed on purpose, run "
        "PYTHONPATH=python python3 -m halfbyte_reference.golden --out tests/golden and look at every difference")


def test_no_file_without_a_topic():
    assert {p.stem for p in GOLDEN.glob("*.hbg")} == set(golden.TOPICS)


def test_files_are_small():
    assert sum(p.stat().st_size for p in GOLDEN.glob("*.hbg")) < 1_000_000


def test_container_round_trip(tmp_path):
    w = container.Writer()
    arrays = {f"a/{i}": np.arange(6, dtype=t).reshape(2, 3) for i, t in enumerate(container.DTYPES.values())}
    arrays |= {"scalar": np.float32(2.5), "empty": np.zeros((0, 4), np.int32)}
    for name, value in arrays.items():
        w.add(name, value)
    w.add("text", "häßlich")
    w.save(tmp_path / "t.hbg")
    back = container.load(tmp_path / "t.hbg")
    assert list(back) == [*arrays, "text"] and back["text"] == "häßlich"
    for name, value in arrays.items():
        assert np.array_equal(back[name], value) and back[name].dtype == value.dtype and back[name].shape == np.shape(value)
    with pytest.raises(ValueError, match="twice"):
        w.add("text", "again")
    with pytest.raises(ValueError, match="not a golden file"):
        (tmp_path / "bad.hbg").write_bytes(b"GGUF1234")
        container.load(tmp_path / "bad.hbg")
