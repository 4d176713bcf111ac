#!/usr/bin/env bash
# tools/gpu/pack.sh: build/gpu/ with what a bare GPU machine needs to run tools/gpu/check.sh: the program and the conformance test,
# stripped, and in lib/ (found by $ORIGIN/lib) their shared libraries but those that a machine with g++ 13 has: glibc, libstdc++,
# OpenSSL 3, zlib, zstd. Program and libraries: 15 MiB at most.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd -P)
cd "$root"
built=${1:-build/release} out=build/gpu
rm -rf "$out"
mkdir -p "$out/lib"
for program in deepinfer tests/test_conformance; do
  strip -o "$out/$(basename "$program")" "$built/$program"
  ldd "$built/$program" | awk '$3 ~ /^\// {print $3}'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libstdc\+\+|libgcc_s|libssl|libcrypto|libz|libzstd)\.so' | while read -r library; do
  strip -o "$out/lib/$(basename "$library")" "$(readlink -f "$library")"
done
size=$(du -cb "$out/deepinfer" "$out/lib" | tail -1 | cut -f1)
echo "$out: program and libraries $((size / 1024)) KiB, with the test $(($(du -sb "$out" | cut -f1) / 1024)) KiB"
if ((size > 15 * 1024 * 1024)); then
  echo "more than 15 MiB" >&2
  exit 1
fi
