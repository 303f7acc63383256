#!/usr/bin/env python3
"""Adds up what the test programs reported (JUnit XML) and closes the run with one line: N passed, N failed[, N skipped].

A stage that failed without a failing test in its reports (a broken build, a format difference) counts as one failure.
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree


NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # node leaves the colours of a failure's text in its report


def count(folder):
    total = failed = skipped = 0
    for path in sorted(folder.rglob("*.xml")):
        for case in xml.etree.ElementTree.fromstring(NOT_XML.sub("", path.read_text(encoding="utf-8"))).iter("testcase"):
            total += 1
            bad = any(case.find(tag) is not None for tag in ("failure", "error"))
            failed += bad
            skipped += not bad and (case.find("skipped") is not None or case.get("status") == "notrun")
    return total - failed - skipped, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--stages", type=int, required=True)
    parser.add_argument("--failed-stages", type=int, required=True)
    arguments = parser.parse_args()
    passed, failed, skipped = count(arguments.folder)
    failed = max(failed, arguments.failed_stages)
    print(f"{arguments.stages - arguments.failed_stages} of {arguments.stages} stages passed")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
