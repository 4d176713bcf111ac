#!/usr/bin/env bash
# ./build.sh [PRESET]: installs what is missing and builds the product (program, library, examples) into build/PRESET.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
source "$root/tools/setup.sh"
preset=${1:-release}
install_missing
build_preset "$preset" product || exit 1
say "built $root/build/$preset/deepinfer"
