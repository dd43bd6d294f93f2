/* SPDX-License-Identifier: Apache-2.0 */
/* Independent chains of one instruction, so that its throughput decides: the loop of a probe of the
 * machine's peak. Room-internal. */
#ifndef KERN_PEAK_H
#define KERN_PEAK_H

/* n rounds of STEP(acc) on each of n_chain accumulators of a vector type that stay in registers.
 * volatile keeps the compiler from removing the unused sums. */
#define PEAK_LOOP(n, vector, n_chain, STEP)                                                        \
    do {                                                                                           \
        vector acc[n_chain] = {0};                                                                 \
        for (int k = 0; k < (n); k++) {                                                            \
            _Pragma("GCC unroll 16") for (int i = 0; i < (n_chain); i++) STEP(acc[i]);             \
        }                                                                                          \
    } while (0)

#endif
