#!/usr/bin/env bash
# ./deepinfer.sh [PROMPT] [flags of `deepinfer run`]: installs what is missing, builds, and answers with the shipped model.
# Without a prompt on a terminal it is a chat.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
source "$root/tools/setup.sh"
install_missing
build_preset release deepinfer || exit 1
exec "$root/build/release/deepinfer" run --stats "$@"
