"""A few of the inputs of ``make fuzz``, which tries many more; and the largest ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.fuzz.lint import LONGEST_S, MOST_MIB, check, inputs, mended_once

ROOT = Path(__file__).parents[3]


@settings(max_examples=150)
@given(inputs())
def test_whatever_is_in_the_file(data: bytes) -> None:
    check(data)


@settings(max_examples=50)
@given(inputs())
def test_whatever_is_mended(data: bytes) -> None:
    mended_once(data)


BIG = 4_000_000
LARGEST = {
    "brackets": "'[' * SIZE",
    "items": "'- a\\n' * (SIZE // 4)",
    "keys": "''.join(f'k{n}: no\\n' for n in range(SIZE // 10))",
    "one line": "'attnsel: 1 ' * (SIZE // 11)",
    "comments": "'# attnsel: ignore[CAP105] why\\n' * (SIZE // 31)",
    "marked manifest": "GOOD + '# attnsel: ignore[CAP105] why\\n' * (SIZE // 31)",
    "codes": "GOOD + '# attnsel: ignore[' + 'CAP105,' * (SIZE // 8) + '] why'",
    "signs": "GOOD + '# attnsel' * (SIZE // 9)",
    "quotes": "'\"' + '\\\\n' * (SIZE // 2) + '\"'",
    "spaces": "'a:' + ' ' * (SIZE - 10)",
    "breaks": "'\\r' * SIZE",
    "too large": "'#' * (SIZE + SIZE)",
    "unknown keys": "GOOD + ''.join(f'k{n}: 1\\n' for n in range(SIZE // 12))",
}
SCRIPT = """
import re, sys, time
from selector.lint.many import check_bytes
from selector.lint.running import Selection
SIZE, GOOD = int(sys.argv[1]), open(sys.argv[2]).read()
data = eval(sys.argv[3]).encode()
check_bytes(GOOD.encode(), "warm.yaml", (), Selection())
began = time.process_time()
found = check_bytes(data, "a.yaml", (), Selection())
took = time.process_time() - began
# what getrusage says of a process begins with what its parent had
mib = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
import json
print(json.dumps([took, mib, len(found.findings)]))
"""


@pytest.mark.parametrize("what", LARGEST)
def test_the_largest_files_are_told_soon_and_in_little_memory(what: str) -> None:
    good = str(ROOT / "tests/manifests/good/smallest.yaml")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(BIG), good, LARGEST[what]],
        capture_output=True,
        text=True,
        check=True,
    )
    took, mib, findings = json.loads(ran.stdout)
    assert findings or what == "signs"
    assert took < LONGEST_S
    assert mib < MOST_MIB
