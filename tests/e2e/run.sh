#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All end-to-end checks that need nothing but python3.   run.sh [BUILD]
set -u
here=$(dirname "$0")
build=${1:-$here/../../build}
bad=0
for c in logits golden_tokens templates cli company badfiles; do
    python3 "$here/check_$c.py" "$build" || bad=1
done
exit $bad
