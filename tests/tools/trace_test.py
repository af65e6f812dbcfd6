"""halfbyte trace: the records against the policy's definition, the second plan, and the page in a browser where there is one."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tiny_chat
from conftest import BINARY, PATIENCE, clean_environment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from halfbyte_reference import reset  # noqa: E402

FIELDS = ["index", "token", "text", "reasoning", "entropy", "step_mean", "running_mean", "threshold", "temperature", "boundary", "uncertain",
          "top"]


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def page_data(page):
    return json.loads(re.search(r"^const data = (.*)$", page, re.MULTILINE).group(1))


def test_one_object_a_token(halfbyte, model):
    r = halfbyte("trace", model, "Hi", "--jsonl", "-")
    assert (r.code, r.err) == (0, "")
    rows = records(r.out)
    assert [list(row) for row in rows] == [FIELDS] * 9
    assert "".join(row["text"] for row in rows) == "<think>ab</think>Done<|im_end|>"
    assert [row["reasoning"] for row in rows] == [True] * 4 + [False] * 5
    ids = tiny_chat.token_ids()
    assert [row["token"] for row in rows] == [i for t in ["<think>", "a", "b", "</think>", "D", "o", "n", "e", "<|im_end|>"] for i in ids(t)]
    for row in rows:
        assert row["threshold"] is None and row["temperature"] == 0
        assert len(row["top"]) == 5 and row["top"][0]["token"] == row["token"]
        before = [c["before"] for c in row["top"]]
        assert before == sorted(before, reverse=True) and sum(before) <= 1 + 1e-6
        assert [c["after"] for c in row["top"]] == [1, 0, 0, 0, 0]           # greedy


def check_against_the_definition(rows, policy):
    """Everything the trace says about temperatures follows from its entropies and texts."""
    classes = []
    for row in rows:
        boundary = reset.at_boundary(classes)
        temperature, h_step, h_bar, uncertain = policy.step(row["entropy"], boundary)
        assert (row["boundary"], row["step_mean"], row["running_mean"], row["uncertain"]) == (boundary, h_step, h_bar, uncertain), row
        assert row["threshold"] == (h_step if uncertain else policy.tau0)
        assert row["temperature"] == pytest.approx(temperature, abs=1e-7)
        classes.append(reset.piece_class(row["text"]))


def test_smollm2_follows_the_policy(halfbyte, smollm2, tmp_path):
    r = halfbyte("trace", smollm2, "Write three short paragraphs about the sea.", "--policy", "reset", "--reset-tau0", 1.5, "--reset-t-low", 0.25,
                 "--reset-window", 8, "--seed", 5, "--max-tokens", 120, "--jsonl", tmp_path / "t.jsonl", "--html", tmp_path / "t.html",
                 "--compare", "w4a4")
    assert r.code == 0, r.err
    rows = records((tmp_path / "t.jsonl").read_text())
    check_against_the_definition(rows, reset.Reset(tau0=1.5, t_low=0.25, window=8))
    assert {row["temperature"] for row in rows} == {0.25, 1.0}
    for row in rows:
        p, after = [c["before"] for c in row["top"]], [c["after"] for c in row["top"]]
        if row["temperature"] == 1:
            assert p == after
        else:
            assert after[0] >= p[0]
            ratio = (p[0] / p[1]) ** (1 / row["temperature"])
            assert after[1] < 1e-4 or after[0] / after[1] == pytest.approx(ratio, rel=2e-3)
        assert set(row["other"]) == {"token", "text", "entropy", "probability"} and 0 <= row["other"]["probability"] <= 1
    # 4-bit activations change some choices and not most of them.
    changed = sum(row["other"]["token"] != row["top"][0]["token"] for row in rows)
    assert 0 < changed < len(rows) / 2
    data = page_data((tmp_path / "t.html").read_text())
    assert len(data["tokens"]) == len(rows) and data["other"] == "w4a4" and "tau0 1.5" in data["sampling"]
    assert [t[0] for t in data["tokens"]] == [row["text"] for row in rows]


def test_small_probabilities_are_numbers(halfbyte, model):
    """The draw's own weights end at 2^-31 of the largest; the record says what the logits and the temperature make."""
    r = halfbyte("trace", model, "Hi", "--jsonl", "-", "--temperature", "0.3", "--seed", "1", "--max-tokens", "4")
    assert r.code == 0, r.err
    small = 0
    for line in r.out.splitlines():
        assert '"temperature":0.3,' in line
        top = json.loads(line)["top"]
        for c in top[1:]:
            assert c["after"] == pytest.approx(top[0]["after"] * (c["before"] / top[0]["before"]) ** (1 / .3), rel=1e-3), top
            small += 0 < c["after"] < 1e-10
    assert small > 0, "the model is sure of its answer"


def test_the_same_plan_agrees_with_itself(halfbyte, model):
    rows = records(halfbyte("trace", model, "Hi", "--jsonl", "-", "--plan", "w4a16", "--compare", "w4a16", "--kernels", "ref").out)
    for row in rows:
        assert row["other"]["token"] == row["token"]
        assert row["other"]["entropy"] == row["entropy"]


def test_refusals(halfbyte, model, tmp_path):
    for args, expected in (
            ([], "nothing to write"),
            (["--jsonl", "-", "--reference", model], "--compare PLAN, which is missing"),
            (["--jsonl", "-", "--policy", "hot"], "fixed, reset, token, window, step, low-step"),
            (["--jsonl", "-", "--policy", "reset", "--temperature", "0.6"], "leave out --temperature"),
            (["--jsonl", "-", "--reset-tau0", "0.6"], "add --policy reset"),
            (["--jsonl", "-", "--policy", "reset", "--reset-tau0", "-1"], "tau0 is -1, expected 0 to 100"),
            (["--jsonl", tmp_path / "no" / "t.jsonl"], "cannot be written"),
            (["--jsonl", "-", "--compare", "w5"], "w5")):
        r = halfbyte("trace", model, "Hi", *args)
        assert r.code == 2 and expected in r.err and r.err.splitlines()[-1].startswith("error: "), (args, r.err)


def test_files_appear_whole_or_not_at_all(halfbyte, model, tmp_path):
    """A path that cannot be written is said before the work, and what was there stays until the new page is whole."""
    folder = tmp_path / "out"
    folder.mkdir()
    for flag, path, words in [("--jsonl", folder / "no" / "x", "No such file"), ("--html", folder, "Is a directory")]:
        r = halfbyte("trace", model, "Hi", flag, path)
        assert r.code == 2 and r.out == "" and f"{flag}: " in r.err and words in r.err, r.err
    r = halfbyte("trace", model, "Hi", "--jsonl", folder / "x", "--html", folder / "x")
    assert r.code == 2 and "same file" in r.err
    r = halfbyte("trace", model, "Hi", "--html", folder / "x", "--compare", "w9")
    assert r.code == 2 and r.out == "" and "w9" in r.err
    page = folder / "page.html"
    page.write_text("old")
    page.chmod(0o640)
    big = subprocess.run(["/bin/sh", "-c", 'ulimit -f 1; exec "$@"', "sh", BINARY, "trace", model, "Hi", "--html", page],
                         capture_output=True, text=True, env=clean_environment())
    assert big.returncode == 2 and "File too large" in big.stderr and page.read_text() == "old"
    assert [p.name for p in folder.iterdir()] == ["page.html"]
    assert halfbyte("trace", model, "Hi", "--html", page).code == 0
    assert "<html" in page.read_text() and page.stat().st_mode & 0o777 == 0o640
    assert halfbyte("trace", model, "Hi", "--html", "/dev/null").code == 0


def test_a_text_that_ends_the_script_stays_text(halfbyte, model, tmp_path):
    r = halfbyte("trace", model, "</script><script>alert(1)</script>", "--html", tmp_path / "t.html", "-q")
    assert r.code == 0 and r.err == ""
    page = (tmp_path / "t.html").read_text()
    assert page.count("</script>") == 1 and page_data(page)["prompt"].startswith("</script>")
    assert "http://" not in page and "https://" not in page                     # no network


# What a person does, and what the page says then, as JSON in an attribute.
PROBE = """
<script>
const said = {};
const say = (name, value) => { said[name] = value; document.documentElement.dataset.said = JSON.stringify(said); };
addEventListener("load", () => {
  const key = k => document.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true, cancelable: true }));
  const heading = () => document.querySelector("#panel h2").textContent;
  const chosen = () => +document.querySelector(".t.on").dataset.i;
  say("spans", document.querySelectorAll("#text .t").length);
  say("steps", document.querySelectorAll("#text .step").length);
  say("first", chosen());
  key("ArrowRight"); key("ArrowRight"); say("right", chosen());
  key("ArrowLeft"); say("left", chosen());
  key("End"); say("end", chosen());
  key("ArrowUp"); say("up", chosen());
  key("Home"); key("ArrowDown"); say("down", chosen());
  document.querySelectorAll("#text .t")[7].dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  say("hover", chosen()); say("hoverText", heading());
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, clientX: box.right - 11, clientY: box.top + 20 }));
  say("curve", chosen());
  say("rows", document.querySelectorAll("#panel table tr").length);
});
addEventListener("error", e => say("error", e.message));
</script>
"""


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    pytest.skip("no Chromium is installed")


def test_ten_thousand_tokens_in_a_browser(halfbyte, model, tmp_path):
    program = browser()
    halfbyte("trace", model, "Hi", "--html", tmp_path / "t.html", "-q", "--policy", "reset")
    page = (tmp_path / "t.html").read_text()
    data = page_data(page)
    some = data["tokens"]
    data["tokens"] = [list(some[i % len(some)]) for i in range(10_000)]
    for i, token in enumerate(data["tokens"]):
        token[0], token[1], token[6] = f" w{i}" + ("\n\n" if i % 50 == 49 else ""), (i * 37 % 300) / 100, int(i % 50 == 0 and i > 0)
    text = json.dumps(data).replace("<", "\\u003c")
    page = re.sub(r"^const data = .*$", lambda _: "const data = " + text, page, flags=re.MULTILINE)
    (tmp_path / "big.html").write_text(PROBE + page)
    r = subprocess.run([program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--window-size=1200,800",
                        "--dump-dom", f"file://{tmp_path}/big.html"], capture_output=True, text=True, timeout=PATIENCE, env=clean_environment())
    found = re.search(r'<html[^>]* data-said="([^"]*)"', r.stdout)
    assert found, (r.stdout[:300], r.stderr[-2000:])
    said = json.loads(found.group(1).replace("&quot;", '"'))
    assert "error" not in said, said
    assert said.pop("curve") > 9900
    assert said == {"spans": 10_000, "steps": 200, "first": 0, "right": 2, "left": 1, "end": 9999, "up": 9900, "down": 50, "hover": 7,
                    "hoverText": " w7", "rows": 6}
