#!/usr/bin/env python3
"""Every instruction of an ISA folder's objects must belong to the features that its table rows require.

    check_instructions.py ISA OBJECT...

A CPU is sent into a folder because of the features that its rows name. One instruction beyond them, which a compiler
flag or an intrinsic can bring in, is an illegal instruction on some CPU that nobody here has. So this looks at what
objdump shows: mnemonics of other extensions, and registers wider than the folder may use.
"""

import re
import subprocess
import sys

# Mnemonics by extension: what x86-64 CPUs may have beyond AVX2, FMA, F16C and AVX-512 F, BW, DQ, VL. tzcnt is left out:
# it is also how compilers write bsf.
BEYOND = {
    "AVX512_VBMI": r"vperm[it]2b|vpermb|vpmultishiftqb",
    "AVX512_VBMI2": r"vp(compress|expand)[bw]|vpsh[lr]dv?[wdq]",
    "AVX512_BITALG, AVX512_VPOPCNTDQ": r"vpopcnt[bwdq]|vpshufbitqmb",
    "AVX512_IFMA": r"vpmadd52[lh]uq",
    "AVX512_CD": r"vpconflict[dq]|vplzcnt[dq]|vpbroadcastm\w+",
    "AVX512_ER, AVX512_PF": r"vexp2p[sd]|vrcp28\w+|vrsqrt28\w+|v(gather|scatter)pf\w+",
    "AVX512_BF16": r"vdpbf16ps|vcvtne2?ps2bf16\w?",
    "AVX512_FP16": r"v\w+(ph|sh)(x|2psx?|2pd)?(?<!vcvtps2ph)(?<!vcvtph2ps)",
    "AVX512_VP2INTERSECT": r"vp2intersect[dq]",
    "AVX512_VNNI": r"vpdp(busd|wssd)s?",
    "AVX-VNNI-INT8, INT16": r"vpdp(b[su]u|bss|w[su]u|wus)ds?",
    "GFNI, VAES, VPCLMULQDQ": r"v?gf2p8\w+|vaes\w+|vpclmulqdq",
    "AMX": r"tdp\w+|tile\w+|ldtilecfg|sttilecfg",
    "BMI1, BMI2, ADX": r"andn|bextr|bls[ir]|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|adcx|adox",
    "LZCNT": r"lzcnt",
}
ALLOWED = {
    "avx2": set(),
    "avx512": {"AVX512_VNNI"},
    "avx512bf16": {"AVX512_VNNI", "AVX512_BF16"},
}
WIDEST = {"avx2": "ymm", "avx512": "zmm", "avx512bf16": "zmm"}
# EVEX-only registers and masks in a folder for AVX2.
EVEX = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b")
# What shows that the objects are what they claim to be: without it a wrong path would pass.
EXPECTED = {"avx2": r"\tvfmadd\w+ .*%ymm", "avx512": r"\tvpdpbusd .*%zmm", "avx512bf16": r"\tvdpbf16ps .*%zmm"}


def main():
    isa, objects = sys.argv[1], sys.argv[2:]
    beyond = {name: re.compile(rf"({pattern})$") for name, pattern in BEYOND.items() if name not in ALLOWED[isa]}
    bad = {}
    count = 0
    expected_seen = False
    for path in objects:
        out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            match = re.match(r"\s*[0-9a-f]+:\t(?:\{\w+\} )?(\w+)(.*)", line)
            if not match:
                continue
            count += 1
            mnemonic, operands = match.groups()
            expected_seen = expected_seen or re.search(EXPECTED[isa], line) is not None
            for name, pattern in beyond.items():
                if pattern.fullmatch(mnemonic):
                    bad.setdefault((path.split("/")[-1], mnemonic, name), line.strip())
            if WIDEST[isa] == "ymm" and EVEX.search(operands):
                bad.setdefault((path.split("/")[-1], mnemonic, "AVX512"), line.strip())
    for (path, mnemonic, name), line in bad.items():
        print(f"{path}: {mnemonic} is of {name}: {line}")
    if bad or not expected_seen:
        if not expected_seen:
            print(f"no instruction like '{EXPECTED[isa]}': these are not the objects of {isa}")
        print(f"check_instructions: FAILED for {isa}, {count} instructions in {len(objects)} objects")
        return 1
    print(f"check_instructions: ok, {count} instructions in {len(objects)} objects of {isa}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
