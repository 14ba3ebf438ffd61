#!/usr/bin/env bash
# The independent decoder agrees with every capture. usage: oracle_over_captures.sh FOLDER
set -euo pipefail
cd "$1"
count=0
for capture in captures/*.pcap; do
  case $capture in
    # 22 frames of it were corrupted on purpose.
    */netem_corrupt.pcap) extra=(--expect-bad-icrc 22) ;;
    *) extra=() ;;
  esac
  python3 oracle/roce_oracle.py "$capture" --summary "${extra[@]}" >/dev/null || { echo "$capture"; exit 1; }
  count=$((count + 1))
done
[ $count -ge 60 ]
