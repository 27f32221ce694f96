"""bench/run examples: the papers' worked examples, which unit programs check number by number.

A case passes only if the product counts what the paper counts. So the table has a value where the
case passed, and none where it failed. Sources of the values: the cases named here."""
import os
import re
import subprocess

from impress import write_rows

# Figure, what is counted, its value, unit program, case.
CASES = (
    ("7a", "Jaccard index of {0, 2} and {0, 1}", 1 / 3, "test_kernels_topk",
     "sets_overlap_as_the_papers_example_says"),
    ("9", "vectors, all keys", 160, "test_plugin_select",
     "figure_9_wants_76_vectors_where_all_keys_are_160"),
    ("9", "vectors, probe keys", 76, "test_plugin_select",
     "figure_9_wants_76_vectors_where_all_keys_are_160"),
    ("14", "transfers by lfu", 20, "test_plugin_dual", "figure_14_takes_15_transfers_for_20"),
    ("14", "transfers by score", 15, "test_plugin_dual", "figure_14_takes_15_transfers_for_20"),
)
PROGRAMS = tuple(dict.fromkeys(program for *_, program, _ in CASES))
FIELDS = ("figure", "what", "value", "program", "case", "passed")


def passed_of(program):
    """The cases of a unit program that passed, by what cmocka prints."""
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    return set(re.findall(r"^\[ +OK +\] (\w+)", done.stdout + done.stderr, re.M))


def examples(csv_path, build):
    """Did all cases pass, and the lines of the table."""
    passed = {name: passed_of(os.path.join(build, "tests", name)) for name in PROGRAMS}
    lines = []
    for figure, what, value, program, case in CASES:
        ok = case in passed[program]
        lines.append({"figure": figure, "what": what, "value": value if ok else "",
                      "program": program, "case": case, "passed": int(ok)})
        print(f"figure {figure}: {what}: {f'{value:.4g}' if ok else 'DOES NOT HOLD'} ({case})")
    if csv_path:
        write_rows(csv_path, FIELDS, lines)
    return all(line["passed"] for line in lines), {"lines": lines}
