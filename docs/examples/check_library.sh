#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library as its users see it: only sl_* can be seen, the installed headers and pkg-config file
# work, shared and static, and the examples run.   check_library.sh SOURCE BUILD CC
set -eu
src=$1 build=$2 cc=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

other=$(nm -D --defined-only "$build/libsluice.so" |
    awk '$2 ~ /[TBDRW]/ && $3 !~ /^sl_/ { print $3 }')
[ -z "$other" ] || { echo "libsluice.so exports $other"; exit 1; }
other=$(nm -g --defined-only "$build/libsluice.a" | awk 'NF == 3 && $3 !~ /^sl_/ { print $3 }')
[ -z "$other" ] || { echo "libsluice.a exports $other"; exit 1; }
n=$(nm -D --defined-only "$build/libsluice.so" | grep -c ' T sl_')
declared=$(grep -c '^SL_API' "$src/include/sluice.h")
[ "$n" = "$declared" ] ||
    { echo "libsluice.so has $n functions, sluice.h declares $declared"; exit 1; }

cmake --install "$build" --prefix "$tmp/here" >/dev/null
pc=$(find "$tmp" -name sluice.pc)
lib=$(dirname "$(dirname "$pc")")
inc=$(dirname "$(find "$tmp" -name sluice.h)")
export PKG_CONFIG_PATH="$(dirname "$pc")"
pkg-config --validate sluice
[ "$(pkg-config --modversion sluice)" = \
    "$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' "$src/CMakeLists.txt")" ]
[ -f "$(find "$tmp" -name sluice.1)" ]
$cc -Wall -Werror "$src/docs/examples/hello.c" $(pkg-config --cflags --libs sluice) \
    -o "$tmp/hello_shared"
$cc -Wall -Werror -I"$inc" "$src/docs/examples/hello.c" "$lib/libsluice.a" \
    $(pkg-config --libs $(sed -n 's/^Requires.private: //p' "$pc")) -lm -lpthread \
    -o "$tmp/hello_static"
echo '#include <sluice.h>' |
    $cc -std=c99 -Wall -Wextra -Werror -pedantic -I"$inc" -fsyntax-only -x c -
command -v g++ >/dev/null && echo '#include <sluice.h>' |
    g++ -Wall -Wextra -Werror -I"$inc" -fsyntax-only -x c++ -

model=$(ls "$src"/models/demo/*.gguf 2>/dev/null | head -1)
chat=$model
[ -n "$model" ] || model=${SLUICE_TINY_DIR:-}/smollm.gguf
[ -f "$model" ] || { echo "no model to run: compiled only"; exit 0; }
a=$(LD_LIBRARY_PATH=$lib "$tmp/hello_shared" "$model" "The first thing")
b=$("$tmp/hello_static" "$model" "The first thing")
[ -n "$a" ] && [ "$a" = "$b" ] || { echo "shared says '$a', static says '$b'"; exit 1; }
[ "$("$build/docs/examples/example_threads" "$model" | grep -c '^request .* tokens, ')" = 3 ] ||
    { echo "threads example failed"; exit 1; }
if [ -n "$chat" ]; then
    env -u SLUICE_MODELS "$build/docs/examples/example_hello" >/dev/null ||
        { echo "hello does not find the demo model"; exit 1; }
    [ "$("$build/docs/examples/example_batch" "$chat" | grep -c ' tokens)$')" = 3 ] ||
        { echo "batch example failed"; exit 1; }
fi
echo "library: $n functions, examples run"
