# SPDX-License-Identifier: Apache-2.0
for c in run chat pack tokenize template inspect eval bench doctor; do
    $SLUICE $c --help > h; grep -q -- "sluice $c" h && [ $(wc -l < h) -lt 100 ] && echo $c
done
