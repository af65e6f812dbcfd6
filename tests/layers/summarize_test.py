"""The counting of tests/support/summarize.py on made-up reports: nothing may be lost, and no failure may look like a pass."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "summarize.py"


def summarize(tmp_path, ctest_cases, reports, *more):
    (tmp_path / "ctest-run.xml").write_text("<testsuite>" + "".join(ctest_cases) + "</testsuite>")
    for name, text in reports.items():
        (tmp_path / f"{name}.xml").write_text(text)
    run = subprocess.run([sys.executable, SCRIPT, tmp_path, *more], capture_output=True, text=True)
    return run.returncode, run.stdout.strip().splitlines()


def ctest_case(name, status, output="", message=""):
    skipped = f'<skipped message="{message}"/>' if message else ""
    return f'<testcase name="{name}" status="{status}">{skipped}<system-out>{output}</system-out></testcase>'


GTEST = """<testsuites><testsuite name="A">
<testcase name="a" status="run" result="completed" classname="A"/>
<testcase name="b" status="run" result="completed" classname="A"{failure}</testcase>
<testcase name="c" status="run" result="skipped" classname="A"><skipped message="x_test.cpp:3&#x0A;no GPU&#x0A;"/></testcase>
<testcase name="DISABLED_d" status="notrun" result="suppressed" classname="A"/>
</testsuite></testsuites>"""

PYTEST = """<testsuites><testsuite><testcase classname="t" name="p"/><testcase classname="t" name="q"><error message="boom"/></testcase>
<testcase classname="t" name="r"><skipped message="no torch">x.py:1: no torch</skipped></testcase>
<testcase classname="" name="tests.u"><skipped message="collection skipped">('u.py', 12, 'Skipped: no numpy')</skipped></testcase>
</testsuite></testsuites>"""


def test_cases_are_counted_one_by_one(tmp_path):
    code, lines = summarize(tmp_path, [ctest_case("g", "run"), ctest_case("plain", "run")], {"g": GTEST.format(failure=">")})
    assert lines[-1] == "3 passed, 0 failed, 1 skipped"
    assert "  1 x no GPU (g: A.c)" in lines
    assert code == 0


def test_a_program_that_ctest_calls_skipped_counts_as_its_cases(tmp_path):
    cases = "".join(f'<testcase name="{n}" status="run" result="skipped" classname="A"><skipped message="no GPU"/></testcase>' for n in "ab")
    code, lines = summarize(tmp_path, [ctest_case("g", "notrun", "", "SKIP_RETURN_CODE=77"), ctest_case("plain", "run")],
                            {"g": f"<testsuites><testsuite>{cases}</testsuite></testsuites>"})
    assert (code, lines[-1]) == (0, "1 passed, 0 failed, 2 skipped")


def test_a_failed_case_is_counted_once(tmp_path):
    failed = GTEST.format(failure='><failure message="x_test.cpp:9&#x0A;Expected 1"/>')
    code, lines = summarize(tmp_path, [ctest_case("g", "fail")], {"g": failed})
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"
    assert code == 1


def test_a_crash_after_passing_cases_is_a_failure(tmp_path):
    code, lines = summarize(tmp_path, [ctest_case("g", "fail", "ERROR: LeakSanitizer")], {"g": GTEST.format(failure=">")})
    assert lines[-1] == "2 passed, 1 failed, 1 skipped"
    assert any("LeakSanitizer" in line for line in lines)
    assert code == 1


def test_a_crash_without_a_report_is_a_failure(tmp_path):
    code, lines = summarize(tmp_path, [ctest_case("g", "fail")], {})
    assert (code, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_broken_report_is_a_failure(tmp_path):
    code, lines = summarize(tmp_path, [ctest_case("g", "run")], {"g": "<testsuites><testcase"})
    assert (code, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_pytest_cases(tmp_path):
    code, lines = summarize(tmp_path, [ctest_case("p", "fail")], {"p": PYTEST})
    assert lines[-1] == "1 passed, 1 failed, 2 skipped"
    assert "  1 x no torch (p: t.r)" in lines
    assert any("no numpy" in line for line in lines)
    assert code == 1


def test_skipped_and_missing_programs(tmp_path):
    cases = [ctest_case("s", "notrun", "SKIPPED: no GPU", "SKIP_RETURN_CODE=77"),
             ctest_case("m", "notrun", "Unable to find executable: m", "Unable to find executable"), ctest_case("ok", "run")]
    code, lines = summarize(tmp_path, cases, {})
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")
    assert any(line.startswith("  m: ") for line in lines)


def test_nothing_at_all_is_a_failure(tmp_path):
    code, lines = summarize(tmp_path, [], {})
    assert (code, lines) == (1, ["no test ran", "0 passed, 0 failed, 0 skipped"])


def test_several_runs_add_up_and_a_missing_one_fails(tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    code, lines = summarize(tmp_path, [ctest_case("a", "run")], {}, second)
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    (second / "ctest-run.xml").write_text("<testsuite>" + ctest_case("b", "run") + "</testsuite>")
    code, lines = summarize(tmp_path, [ctest_case("a", "run")], {}, second)
    assert (code, lines[-1]) == (0, "2 passed, 0 failed, 0 skipped")
