/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of cores: one row per core type, found by CPU family and model (base/cpu.h). Which
 * instructions a CPU has says nothing about these; a row says what was measured on that core.
 *
 * X(core, family, model0, model1, two_tiles, prefetch_1, prefetch_n, prefetch_from,
 *   prefetch_far_1, prefetch_far)
 * The first row whose family and range of models fit is taken; the last fits every CPU. The fields
 * are those of struct kern (kern.h), in bytes and columns.
 *
 * two_tiles: a column of one tile has a load for each of its eight products, and one for each of
 * its scales: where the core has as many ports for products as for loads, that bounds it (Zen 5:
 * 52 % of the integer peak with one tile, 68 with two; not measured elsewhere).
 *
 * prefetch_1, prefetch_n, prefetch_from: at one column a software prefetch costs 10-20 % on Zen 4
 * and gains 15-25 points on Zen 3; at several it gains on both, but at two of them not on Zen 4
 * (94 % of the read bandwidth without, 85 with). Zen 5 wants it far ahead everywhere: one thread
 * reads q4_k at one column at 53 % of the read bandwidth without, 70 with 2 KiB, 92 with 8 KiB.
 *
 * prefetch_far: lines under way to the first-level cache are few: with three to eight columns a
 * core of Zen 4 computes longer than memory at 60 GB/s takes, and waits nevertheless unless the
 * second level was asked long before (45.7 and 53.4 GB/s with three of q4_0, 40 and 50 with those
 * of q6_k; at 35 GB/s 0 to 5 % more, 15 at eight of q6_k; not measured elsewhere).
 *
 * prefetch_far_1: the same at one column. A Xeon with AMX (family 6; 29 GB/s) decodes 5 to 25 %
 * faster with 4096 than without; 5 KiB and more gain nothing. At two to eight columns of four-bit
 * weights it gains 8 to 15 %, with lines for the first level asked 1536 ahead instead of 2048
 * (docs/notes/experiments.md; not measured elsewhere). */
#ifndef KERN_CPU_TUNE_H
#define KERN_CPU_TUNE_H

#define KERN_CPU_ANY (-1)

#define KERN_CPU_TUNE_LIST(X)                                                                      \
    X(zen4, 0x19, 0x10, 0x1f, 0, 0, 3072, 3, 0, 12288)                                             \
    X(zen4, 0x19, 0x60, 0xff, 0, 0, 3072, 3, 0, 12288)                                             \
    X(zen3, 0x19, 0x00, 0xff, 1, 2048, 2048, 2, 0, 0)                                              \
    X(zen5, 0x1a, 0x00, 0xff, 1, 8192, 8192, 2, 0, 0)                                              \
    X(intel, 0x06, 0x00, 0xff, 1, 1024, 1536, 2, 4096, 4096)                                       \
    X(other, KERN_CPU_ANY, 0x00, 0xff, 1, 1024, 2048, 2, 0, 0)

#endif
