#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The laws of the house. laws.sh SOURCE_DIR BUILD_DIR includes|symbols|touch|headers|sizes|tree
# includes  every #include "x/y.h" under src is an edge of ROOMS, carries its room, and _internal.h
#           stays in its room; no other room reads fields of struct sched
# symbols   lib<room>.a exports <room>_* only (base: <file>_*; rooms with "+" also sl_*)
# touch     undefined symbols against TOUCH
# headers   every header compiles alone; every .c of a room includes its own header first where it
#           has one
# sizes     files <= 800 lines, functions <= 70 (kernels 150)
# tree      no machine paths, no links to package hosts, SPDX lines
set -eu
src=$1 build=$2 law=$3
cd "$src"
bad=0
fail() { echo "$*"; bad=1; }
rooms=$(sed -n 's/^\([a-z]*\):.*/\1/p' ROOMS)

case $law in
includes)
    for room in $rooms; do
        [ -d "src/$room" ] || continue
        allowed=" $room $(sed -n "s/^$room: *//p" ROOMS | sed 's/#.*//') "
        out=$(find "src/$room" -name '*.[ch]' -o -name '*.inc' | sort |
            xargs -r awk -v room="$room" -v allowed="$allowed" '
            /^[ \t]*#[ \t]*include[ \t]+"/ {
                split($0, q, "\""); inc = q[2]; n = index(inc, "/")
                if (n == 0) {
                    if (inc == "sluice.h" && index(allowed, " + ")) next
                    if (inc == "sluice.h") print FILENAME ":" FNR ": sluice.h is not for room " room
                    else print FILENAME ":" FNR ": include without its room: " inc
                    next
                }
                to = substr(inc, 1, n - 1)
                at = FILENAME ":" FNR ": "
                if (!index(allowed, " " to " ")) print at room " may not include " inc
                if (to != room && inc ~ /_internal\.h$/)
                    print at "internal header of another room: " inc
            }')
        [ -z "$out" ] || fail "$out"
    done
    # every dependency is an earlier line
    out=$(sed 's/#.*//' ROOMS |
        awk -F: 'NF == 2 {
            n = split($2, d, " ")
            for (i = 1; i <= n; i++)
                if (d[i] != "+" && !(d[i] in seen))
                    print "ROOMS: " $1 ": " d[i] " is not an earlier line"
            seen[$1] = 1
        }')
    [ -z "$out" ] || fail "$out"
    out=$(grep -rnE 'sched(\.|->)[a-z]' src --include='*.[ch]' |
        grep -Ev '^src/sched/|#[ \t]*include' || true)
    [ -z "$out" ] || fail "fields of struct sched are read outside of its room: $out" ;;
symbols)
    for room in $rooms; do
        lib=$(find "$build/src" -name "lib$room.a" | head -1)
        [ -n "$lib" ] || continue
        pat="^${room}_"
        [ "$room" = base ] && pat="^($(cd src/base && ls *.h | sed 's/\.h$//' | paste -sd'|'))_"
        [ "$room" = tensor ] && pat="^(tensor|weight)_" # struct weight lives beside struct tensor
        [ "$room" = engine ] && pat="^(engine|sl)_"
        out=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 { print $3 }' |
            grep -Ev "$pat|^__(odr_)?asan|^__(l?san|ubsan|tsan|gcov|llvm|x86\.get_pc)" || true)
        [ -z "$out" ] || fail "lib$room.a exports names of others:" $out
    done ;;
touch)
    grep -v '^#' TOUCH | while IFS= read -r line; do
        [ -n "$line" ] || continue
        pat=${line% :*} allowed=" ${line##* :} "
        for room in $rooms; do
            case $allowed in *" $room "*) continue ;; esac
            lib=$(find "$build/src" -name "lib$room.a" | head -1)
            [ -n "$lib" ] || continue
            out=$(nm -u "$lib" 2>/dev/null | awk 'NF == 2 { print $2 }' | grep -E "$pat" |
                sort -u || true)
            [ -z "$out" ] || echo "room $room may not call:" $out
        done
    done >"$build/laws_touch.txt"
    [ -s "$build/laws_touch.txt" ] && { cat "$build/laws_touch.txt"; bad=1; } ;;
headers)
    for h in $(git ls-files 'src/*.h' 'include/*.h' 'tools/*.h'); do
        case $h in
        # X-macro tables and per-ISA shims
        *_list.h | src/kern/tmpl/* | src/kern/x86/* | src/kern/arm/*) continue ;;
        esac
        echo "#include \"$src/$h\"" |
            ${CC:-cc} -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -Itools -fsyntax-only -Wall -Wextra \
            -x c - 2>"$build/laws_h.txt" ||
            fail "$h does not compile alone: $(head -3 "$build/laws_h.txt")"
    done
    for c in $(git ls-files 'src/*.c'); do
        h=${c%.c}.h
        [ -f "$h" ] || continue
        first=$(sed -n 's/^#include "\(.*\)"/\1/p' "$c" | head -1)
        case $first in *_internal.h) continue ;; esac # which includes it
        [ "src/$first" = "$h" ] || fail "$c: includes ${first:-nothing} before its own header"
    done ;;
sizes)
    for f in $(git ls-files 'src/*.[ch]' 'tools/*.[ch]' 'tests/*.[ch]' 'include/*.h' 'docs/*.c' \
        'src/*.inc')
    do
        n=$(wc -l <"$f")
        [ "$n" -le 800 ] || fail "$f: $n lines (800)"
        max=70
        case $f in src/kern/*) max=150 ;; esac
        out=$(awk -v f="$f" -v max="$max" '
            /^[A-Za-z_].*[^;]$/ && !/^(struct|enum|union|typedef|#)/ { name = $0; start = FNR }
            /^\{/ { open = FNR }
            /^\}/ {
                n = FNR - open - 1
                if (open && n > max) print f ":" start ": " n " lines (" max "): " name
                open = 0
            }' "$f")
        [ -z "$out" ] || fail "$out"
    done ;;
tree)
    out=$(git grep -nE '/(work|root)/[a-z]' -- . ':!tests/laws/laws.sh' | head -20 || true)
    [ -z "$out" ] || fail "$out"
    for f in $(git ls-files '*.c' '*.h' '*.inc' '*.sh'); do
        head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || fail "$f: no SPDX line"
    done ;;
esac
[ $bad = 0 ] && echo "$law: ok"
exit $bad
