#!/usr/bin/env bash
# Puts the English texts that `eval`, `calibrate` and their tests use into CACHE/texts (docs/third-party.md has the
# licences). They come out of Debian packages that are unpacked into a temporary folder, not installed.
# Called by `tools/setup.sh --with-texts`.
#
#   novel.txt            Jane Austen, Pride and Prejudice (evaluation)
#   handbook.txt         The Debian Administrator's Handbook (evaluation)
#   calibration.txt      Jane Austen, Emma, and the Debian Policy Manual, taking turns (calibration only)
set -euo pipefail

cache="$1"
tools="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
texts="$cache/texts"
stamp="$texts/.complete-$(cat "$tools/make_texts.py" "$0" | sha256sum | cut -c1-12)"
[ -e "$stamp" ] && exit 0

packages=(r-cran-janeaustenr debian-handbook debian-policy)
echo "setup: fetching the texts for evaluation (39 MB of Debian packages)" >&2
tmp="$(mktemp -d "$texts/tmp.XXXXXX")"
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
Download() { (cd "$tmp" && apt-get download -q "${packages[@]}") >"$tmp/log" 2>&1; }
if ! Download; then
  # The list of packages may be missing on a fresh machine.
  if [ "$(id -u)" = 0 ]; then apt-get update -q >>"$tmp/log" 2>&1; else sudo -n apt-get update -q >>"$tmp/log" 2>&1; fi ||
    { tail -3 "$tmp/log" >&2; echo "setup: error: cannot fetch ${packages[*]}" >&2; exit 1; }
  Download || { tail -5 "$tmp/log" >&2; echo "setup: error: cannot fetch ${packages[*]}" >&2; exit 1; }
fi
for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
/usr/bin/python3 "$tools/make_texts.py" "$tmp/root" "$tmp/out"
mv -f "$tmp/out"/*.txt "$texts/"
rm -f "$texts"/.complete-*
touch "$stamp"
