#!/usr/bin/env python3
"""Where a decode step's time goes, by profile, at several depths.

    profile_decode.py TURBOQUANT MODEL TEXT [--depths 0,4096,16384] [--kv-cache-dtype int8] [--seconds 4] [--threads 2]

Starts `turboquant run` with as much of TEXT as makes the depth, waits for the first character of the answer, and samples the
process with `perf record` while it decodes. Shares are of the samples of all threads, by the innermost function of the program or
its libraries; "waiting" is a thread that spins or sleeps at a barrier.
"""
import argparse
import re
import subprocess
import sys
import tempfile
import time

GROUPS = [  # the first that matches
    ("attention: K", r"Qk(F32|F16|Bf16|Int|Narrow|Fp8|[A-Z])|\bQk\w*|PrepareQ|MeanDot"),
    ("attention: V", r"\bPv\w*|Pv(F32|F16|Bf16|Int|Narrow|Fp8|[A-Z])"),
    ("attention: softmax", r"Softmax"),
    ("attention: rotation", r"Rotate"),
    ("attention: scales", r"ExpandScales"),
    ("storing K and V", r"Encode|FitScales|CenterKeys|StoreKv|WriteToken|WriteHalf|Gather|ToHalf"),
    ("attention: the rest", r"UnitWorker|AttendOneUnit|MergeHead|turboquant::.*Merge|PagedAttention|AttendPlan|StorePlan|AttentionState"),
    ("waiting", r"barrier|sched_yield|futex|pthread_|nanosleep|cpu_relax|poll"),
    ("matrix products", r"AddEight|AddTile|FillPanel|QuantizeRow|ProductNode|QuantizeNode|::Matmul|ggml_vec_dot|gemm|gemv|mul_mat|sgemm|tinyBLAS|repack|quantize_row|quantize_mat|forward_mul"),
    ("norms, rope, other nodes", r"ggml_"),
    ("sampling", r"llama_sampler|Sampler|softmax_impl|top_k|std::sort|introsort"),
]


def group_of(symbol):
    return next((name for name, pattern in GROUPS if re.search(pattern, symbol)), "other")


def profile(args, depth):
    words = open(args.text, encoding="utf-8").read()
    command = [args.turboquant, "run", "-m", args.model, "-n", "100000", "-t", str(args.threads), "--kv-cache-dtype", args.kv_cache_dtype,
               "--max-model-len", str(depth + 8192), "--ignore-eos", "--raw"]
    prompt = "The" if depth == 0 else words[: int(depth * args.characters_per_token)]
    with tempfile.NamedTemporaryFile() as data:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdin.write(prompt.encode())
            process.stdin.close()
            process.stdout.read(1)
            begin = time.monotonic()
            subprocess.run(["perf", "record", "-q", "-F", "1999", "-o", data.name, "-p", str(process.pid), "--", "sleep", str(args.seconds)],
                           check=True, stderr=subprocess.DEVNULL)
            seconds = time.monotonic() - begin
            process.kill()
        report = subprocess.run(["perf", "report", "-i", data.name, "--stdio", "-q", "--sort", "symbol", "-F", "overhead,sym"],
                                check=True, capture_output=True, text=True).stdout
    shares = {}
    for line in report.splitlines():
        match = re.match(r"\s*([\d.]+)%\s+\[\S\]\s+(.*)", line)
        if match:
            name = group_of(match.group(2))
            shares[name] = shares.get(name, 0) + float(match.group(1))
            if args.verbose and float(match.group(1)) > 0.5:
                print(f"  {match.group(1)} {name}: {match.group(2)}", file=sys.stderr)
    return shares, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turboquant")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--depths", type=lambda text: [int(i) for i in text.split(",")], default=[0, 4096, 16384])
    parser.add_argument("--kv-cache-dtype", default="int8")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--characters-per-token", type=float, default=4.0, help="of the text, to make a depth")
    parser.add_argument("--verbose", action="store_true", help="list functions above 0.5 %%")
    args = parser.parse_args()
    columns = {}
    for depth in args.depths:
        columns[depth], _ = profile(args, depth)
    names = [name for name, _ in GROUPS] + ["other"]
    print("| share of samples, % | " + " | ".join(f"depth {depth}" for depth in args.depths) + " |")
    print("|---|" + "---|" * len(args.depths))
    for name in names:
        if any(columns[depth].get(name, 0) >= 0.05 for depth in args.depths):
            print(f"| {name} | " + " | ".join(f"{columns[depth].get(name, 0):.1f}" for depth in args.depths) + " |")


if __name__ == "__main__":
    main()
