"""LiveCodeBench's packed tests are unpacked, and a pickle that holds more than a string is refused."""

import base64
import json
import os
import pathlib
import pickle
import sys
import zlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from halfbyte.tasks import livecodebench  # noqa: E402

TESTS = [{"input": "3\n", "output": "9\n", "testtype": "stdin"}]


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def line(private):
    return json.dumps({"question_content": "q", "public_test_cases": json.dumps(TESTS), "private_test_cases": private}) + "\n"


def test_both_forms_are_unpacked(tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line(packed(json.dumps(TESTS * 2))) + "\n" + line(json.dumps(TESTS)))
    assert livecodebench.convert(source, target) == (2, 0)
    first, second = [json.loads(text) for text in target.read_text().splitlines()]
    assert first["public_test_cases"] == TESTS and first["private_test_cases"] == TESTS * 2
    assert second["private_test_cases"] == TESTS
    assert livecodebench.convert(target, tmp_path / "again.jsonl") == (2, 0) and (tmp_path / "again.jsonl").read_text() == target.read_text()
    assert livecodebench.convert(source, target, most_bytes=len(json.dumps(second)) + 1) == (1, 1)


class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def packed_bytes(pickled):
    return base64.b64encode(zlib.compress(pickled)).decode()


# Pickles that stumble: popping an empty stack, a mark that is not there, a missing memo, attributes of nothing, no end.
BROKEN = [b".", b"t.", b"h\x00.", b"]\x8c\x01ab.", b"\x8c\xffa", b"", b"N}\x8c\x01as.", b"\x80\x63.", b"I\xff\n."]


@pytest.mark.parametrize("private", [packed(Harm()), packed(["a"]), "no base64", packed("{"), packed("{}"), base64.b64encode(b"x").decode(), 5, None,
                                     *map(packed_bytes, BROKEN)])
def test_other_things_are_refused(tmp_path, private, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in.jsonl"
    source.write_text(line(json.dumps(TESTS)) + line(private))
    with pytest.raises(SystemExit, match="line 2"):
        livecodebench.convert(source, tmp_path / "out.jsonl")
    assert not (tmp_path / "harmed").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"], "no half of a target"
