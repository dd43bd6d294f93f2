#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening.sh BUILD
# docs/reliability.md S5: what the linker and the compiler were asked for is in the program.
set -eu
build=$1
exe=$build/sluice
bad=0
want() { # name, then a command that must succeed
    name=$1
    shift
    if "$@" >/dev/null; then echo "ok   $name"; else echo "FAIL $name"; bad=1; fi
}
dyn=$(readelf -dW "$exe")
seg=$(readelf -lW "$exe")
sym=$(readelf --dyn-syms -W "$exe")
notes=$(readelf -nW "$exe")
has() { echo "$1" | grep -Eq "$2"; }
no() { ! has "$1" "$2"; }
want "position independent" has "$(readelf -hW "$exe")" 'Type: *DYN'
relro() { has "$seg" GNU_RELRO && has "$dyn" 'BIND_NOW|FLAGS_1.*NOW'; }
want "full RELRO" relro
want "stack not executable" no "$seg" 'GNU_STACK.* RWE'
want "stack canaries" has "$sym" __stack_chk_fail
want "FORTIFY" has "$sym" '__(snprintf|memcpy|vsnprintf|fprintf|printf)_chk'
want "stack clash protection" grep -q -- -fstack-clash-protection "$build/compile_commands.json"
if [ "$(uname -m)" = x86_64 ]; then
    # Debian 12's own start files lack the IBT mark, so the linked program has SHSTK only; our
    # objects are built with both
    cet() { has "$notes" SHSTK && grep -q -- -fcf-protection "$build/compile_commands.json"; }
    want "CET" cet
fi
exit $bad
