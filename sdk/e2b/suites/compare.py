"""Compares what the suites of E2B's SDKs did with what failing.txt expects, and prints the counts: compare.py failing.txt SUITE.xml…"""

import collections
import pathlib
import sys
import xml.etree.ElementTree


def results(file):
    """The outcome of each test by its name: passed, failed or skipped. Of several with one name the worst counts."""
    worst = ["skipped", "passed", "failed"]
    tests = {}
    for case in xml.etree.ElementTree.parse(file).iter("testcase"):
        name = " ".join(f"{case.get('classname', '')}::{case.get('name', '')}".split())
        outcome = "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"
        if case.find("skipped") is not None:
            outcome = "skipped"
        tests[name] = max(outcome, tests.get(name, "skipped"), key=worst.index)
    return tests


def expected(file):
    """What is to fail, by suite: the names, and whether one may pass as well. A line is [reason], SUITE NAME, or SUITE? NAME."""
    listed, reason = collections.defaultdict(dict), ""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            suite, _, name = line.partition(" ")
            if not reason or not name or name in listed[suite.rstrip("?")]:
                sys.exit(f"{file}:{number}: want [reason], then lines of a suite and the name of one of its tests, each once")
            listed[suite.rstrip("?")][name] = suite.endswith("?")
    return listed


def main():
    listed, wrong = expected(pathlib.Path(sys.argv[1])), False
    for file in map(pathlib.Path, sys.argv[2:]):
        tests, known = results(file), listed[file.stem]
        counts = collections.Counter(tests.values())
        print(f"-- {file.stem}: {counts['passed']} of {len(tests)} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        for name, outcome in sorted(tests.items()):
            if outcome == "failed" and name not in known:
                print(f"FAIL {file.stem} {name}: it is not in failing.txt")
                wrong = True
            if outcome == "passed" and known.get(name) is False:
                print(f"PASS {file.stem} {name}: take it out of failing.txt")
                wrong = True
        for name in sorted(set(known) - set(tests)):
            print(f"MISSING {file.stem} {name}: failing.txt has a test that is not there")
            wrong = True
    sys.exit(wrong)


main()
