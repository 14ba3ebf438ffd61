#!/usr/bin/env bash
# Every header compiles alone. usage: headers_alone.sh TOP
set -euo pipefail
cd "$1"
flags=$(pkg-config --cflags libdpdk | sed 's/-I/-isystem /g')
export flags
find include dataplane control verbs_shim -name '*.h' -print0 |
  xargs -0 -P 2 -I{} sh -c 'printf "#include \"%s\"\n" "{}" | g++ -std=c++20 -fsyntax-only -Iinclude -I. $flags -x c++ - || { echo "{} does not compile alone"; exit 1; }'
