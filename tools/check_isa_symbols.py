#!/usr/bin/env python3
"""No object of an ISA folder may define a weak symbol that other code shares.

    check_isa_symbols.py ISA OBJECT...

The linker keeps one copy of an inline function for the whole program. If that copy comes out of a file that was
compiled for AVX-512, a CPU without it meets an illegal instruction in code that looks harmless. So every weak symbol
in such an object must belong to the namespace turboquant::ISA.
"""

import re
import subprocess
import sys


def main():
    isa, objects = sys.argv[1], sys.argv[2:]
    own = re.compile(rf"\bturboquant::{isa}::")
    bad = []
    for path in objects:
        out = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            parts = line.split(maxsplit=2)
            if len(parts) == 3 and parts[1] in "WVuU" and not own.search(parts[2]):
                bad.append(f"{path.split('/src/')[-1]}: {parts[2]}")
    if bad:
        print("\n".join(bad))
        print(f"check_isa_symbols: {len(bad)} shared symbols were compiled with the flags of {isa}; "
              f"use plain code or functions in namespace turboquant::{isa}")
        return 1
    print(f"check_isa_symbols: ok ({len(objects)} objects of {isa})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
