"""Checks deploy/: that kustomize and the Helm chart lead to what `gpufence manifests` renders, that the chart refuses
what it should, and that Kubernetes' own schemas know every field.

Usage: check.py PROGRAM

With KUBEBUILDER_ASSETS the chart is also installed into a real API server. Prints each check and ends with the count
of those that passed, failed and were skipped; the exit code is 0 where none failed.
"""

import sys
import traceback

import charts
import images
import live
import overlays
import schemas
from sources import Fault, Program, Refused


def main(path):
    program = Program(path)
    checker = schemas.Checker()
    passed, failed, skipped = 0, 0, 0
    for group in (images.checks, overlays.checks, charts.checks, live.checks, checker.checks):
        for name, check in group(program, checker):
            if check is None:
                skipped += 1
                print(f"skipped {name}", flush=True)
                continue
            try:
                check()
            except (Fault, Refused) as fault:
                failed += 1
                print(f"FAILED  {name}\n{indented(fault)}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{indented(traceback.format_exc())}", flush=True)
            else:
                passed += 1
                print(f"ok      {name}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


def indented(text):
    return "\n".join(f"        {line}" for line in str(text).splitlines())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check.py PROGRAM")
    sys.exit(main(sys.argv[1]))
