#!/usr/bin/env bash
# clang-format decides layout: no file of ours differs from what it would write. usage: format.sh TOP
set -euo pipefail
cd "$1"
find include dataplane control verbs_shim tests \( -name '*.h' -o -name '*.cc' \) -print0 | xargs -0 -n 40 -P 2 clang-format --dry-run -Werror
