#!/usr/bin/env bash
# Runs every libFuzzer program of a folder for some seconds: run_fuzzers.sh FOLDER SECONDS.
# Seeds come from tests/fuzz/corpus/<name>/ (read only); what is found goes to FOLDER/<name>.corpus and
# FOLDER/<name>-crash-*. Exit status 1 when a target fails or there is none.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="$1" seconds="$2" status=1
for program in "$folder"/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  [ "$status" = 2 ] || status=0
  name="$(basename "$program")"
  mkdir -p "$program.corpus"
  corpora=("$program.corpus")
  [ ! -d "$root/tests/fuzz/corpus/$name" ] || corpora+=("$root/tests/fuzz/corpus/$name")
  echo "fuzz: $name for $seconds s"
  if ! "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
       -artifact_prefix="$program-crash-" "${corpora[@]}" >"$program.log" 2>&1; then
    tail -40 "$program.log"
    echo "fuzz: $name FAILED"
    status=2
  else
    grep -E 'stat::number_of_executed_units|stat::new_units_added' "$program.log" || true
  fi
done
[ "$status" != 1 ] || echo "fuzz: no target in $folder"
[ "$status" = 0 ]
