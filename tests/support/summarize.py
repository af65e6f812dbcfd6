"""summarize.py REPORTS...: counts what one or more ctest runs did, case by case, and prints it.

Each folder REPORTS holds ctest-run.xml, what ctest --output-junit wrote; a folder without it is a run that failed. A test with
a report there (GoogleTest or pytest, NAME.xml) counts as its cases, any other as one. A program that
failed without a failed case in its report (a crash, a time limit, a sanitizer at exit) counts as one failure more. Skips and
failures are listed with their reasons. The last line is "N passed, N failed, N skipped"; exit code 1 if anything failed or
nothing ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict


def first_line(text, limit=300):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0][:limit] if lines else "no reason given"


def skip_reason(skipped):
    """GoogleTest puts "file:line" before the reason; pytest hides a whole module's reason in the text."""
    message = skipped.get("message") if skipped is not None else ""
    if message == "collection skipped":
        message = (skipped.text or "").rsplit("Skipped: ", 1)[-1].strip("')")
    lines = [line.strip() for line in (message or "").splitlines() if line.strip()]
    if len(lines) > 1 and ".cpp:" in lines[0]:
        lines = lines[1:]
    return lines[0][:300] if lines else "no reason given"


def read_cases(report):
    """Yields (name, status, reason) of a JUnit file as GoogleTest and pytest write it."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if failure is not None:
            yield name, "failed", first_line(failure.get("message") or failure.text)
        elif skipped is not None or case.get("result") == "skipped":
            yield name, "skipped", skip_reason(skipped)
        elif case.get("status") == "notrun":
            continue  # a DISABLED_ or filtered GoogleTest case: listed, never started
        else:
            yield name, "passed", ""


def read_ctest(junit):
    """Yields (name, status, output) of ctest --output-junit. Its status is run, fail, notrun or disabled."""
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        status = {"run": "passed", "fail": "failed"}.get(case.get("status"), "skipped")
        if status == "skipped" and skipped is not None and "SKIP" not in (skipped.get("message") or "").upper():
            # ctest says "notrun" also when the program is missing: that is a failure.
            status, output = "failed", skipped.get("message") or output
        yield case.get("name"), status, output


def ctest_skip_reason(output):
    for line in output.splitlines():
        if "SKIP" in line.upper():
            return line.strip()[:300]
    return first_line(output)


def collect(reports):
    results = []
    junit = pathlib.Path(reports) / "ctest-run.xml"
    if not junit.exists():
        return [(str(reports), "failed", "ctest wrote no report")]
    for name, status, output in read_ctest(junit):
        report = pathlib.Path(reports) / f"{name}.xml"
        cases = []
        if report.exists():
            try:
                cases = [(f"{name}: {case}", *rest) for case, *rest in read_cases(report)]
            except ElementTree.ParseError:
                status = "failed"
        if status == "failed" and not any(case[1] == "failed" for case in cases):
            reason = output.strip().splitlines()[-1:] or ["no output"]
            cases.append((name, "failed", "the program failed: " + reason[0].strip()[:300]))
        if not cases:
            cases = [(name, status, ctest_skip_reason(output) if status == "skipped" else "")]
        results += cases
    return results


def main(folders):
    results = []
    for folder in folders:
        build = f"{pathlib.Path(folder).parent.name}: " if len(folders) > 1 else ""
        results += [(build + name, *rest) for name, *rest in collect(folder)]
    by_status = defaultdict(list)
    for name, status, reason in results:
        by_status[status].append((name, reason))
    if by_status["skipped"]:
        by_reason = defaultdict(list)
        for name, reason in by_status["skipped"]:
            by_reason[reason].append(name)
        print("skipped:")
        for reason, names in by_reason.items():
            print(f"  {len(names)} x {reason} ({names[0]}{', ...' if len(names) > 1 else ''})")
    if by_status["failed"]:
        print("failed:")
        for name, reason in by_status["failed"]:
            print(f"  {name}: {reason}")
    if not results:
        print("no test ran")
    print(f"{len(by_status['passed'])} passed, {len(by_status['failed'])} failed, {len(by_status['skipped'])} skipped")
    return 0 if results and not by_status["failed"] else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
