"""bench/results/kernels_cuda_table.py: what it makes of several processes, and that the table in the tree is what it prints."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "results" / "kernels_cuda_table.py"


def case(shape, form, m, us, read_us=5.0):
    implementation = "cublas" if form == "bf16" else "ring"
    return {"shape": shape, "n": 6144, "k": 4096, "implementation": implementation, "format": form, "m": m, "us": us, "read_us": read_us, "ratio": us / read_us}


def run(path, factor, device="NVIDIA H200"):
    cases = [case(s, "nvfp4", m, factor * us) for s, us in (("8B qkv", 6.0), ("8B o", 7.0)) for m, us in ((1, us), (8, us * 1.5))]
    cases += [case(s, "bf16", 1, 18.0 * factor) for s in ("8B qkv", "8B o")]
    path.write_text(json.dumps({"machine": {"device": device, "sm_mhz": int(1000 * factor)}, "cases": cases}), encoding="utf-8")
    return path


def call(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def test_processes_are_joined(tmp_path):
    runs = [run(tmp_path / f"{i}.json", factor) for i, factor in enumerate((1.0, 1.2, 1.1))]
    done = call(tmp_path / "out.json", *runs, "--note", "a note")
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert out["processes"] == 3 and out["note"] == "a note"
    summary = {s["what"]: s for s in out["summary_over_12_shapes"]}
    assert summary["M=1 over the read, worst"] == {"format": "nvfp4", "what": "M=1 over the read, worst", "median": 1.54, "min": 1.4, "max": 1.68}
    assert summary["M=8 over M=1, median"]["median"] == 1.5
    assert summary["cuBLAS BF16 over M=1, median"]["median"] == round((3 + 18 / 7) / 2, 4)
    assert "| 8B qkv | 6144 x 4096 | nvfp4 | 5.00 | 6.60 | 1.320 [1.200, 1.440] | 1.980 [1.800, 2.160] | 1.500 | 3.000 |" in done.stdout
    assert call(tmp_path / "out.json").stdout == done.stdout


def test_other_machines_are_not_mixed(tmp_path):
    done = call(tmp_path / "out.json", run(tmp_path / "a.json", 1.0), run(tmp_path / "b.json", 1.0, device="NVIDIA H100"))
    assert done.returncode != 0 and "different machines" in done.stderr and not (tmp_path / "out.json").exists()


def test_it_is_a_command():
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "usage" in done.stdout


def test_a_wrong_file_is_named_in_one_line(tmp_path):
    good, out = run(tmp_path / "good.json", 1.0), tmp_path / "out.json"
    one_case = {"n": 1, "k": 1, "implementation": "ring", "format": "nvfp4", "m": 1, "us": 1}
    for text, said in ((None, "No such file"), ("{", "no JSON"), ("{}", "bench_kernels_cuda --json"), ("[]", "bench_kernels_cuda --json"),
                       (json.dumps({"machine": {}, "cases": [{"n": 1}]}), "cases with format"),
                       (json.dumps({"machine": {}, "cases": [{**one_case, "shape": "8B o"}]}), "read_us and ratio")):
        wrong = tmp_path / "wrong.json"
        wrong.unlink(missing_ok=True)
        if text is not None:
            wrong.write_text(text, encoding="utf-8")
        done = call(out, good, wrong)
        assert done.returncode == 1 and done.stderr.startswith(f"kernels_cuda_table: {wrong}: ") and said in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1 and not out.exists()
    for text in (None, "{}"):
        if text is not None:
            out.write_text(text, encoding="utf-8")
        done = call(out)
        assert done.returncode == 1 and done.stderr.startswith(f"kernels_cuda_table: {out}: ") and done.stderr.count("\n") == 1
    assert call(tmp_path, good).stderr.startswith(f"kernels_cuda_table: {tmp_path}: Is a directory")


def test_the_table_in_the_tree_is_what_the_script_prints():
    found = sorted((ROOT / "bench" / "results").glob("h200_kernels_*.json"))
    assert found
    for results in found:
        text = results.with_suffix(".md").read_text(encoding="utf-8")
        assert text.endswith("\n" + call(results).stdout), f"{results.name}: run kernels_cuda_table.py {results.name} again"
