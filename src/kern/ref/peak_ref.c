/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic peaks in plain C: loops of independent sums. */
#include "kern/vec.h"

double kern_peak_i8_ref(int n)
{
    int32_t acc[8] = {0};
    volatile int8_t one = 1;
    int8_t w = one;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 8; j++)
            acc[j] = (int32_t)((uint32_t)acc[j] + (uint32_t)(w * (i & 127)));
    volatile int32_t sink = acc[0] ^ acc[1] ^ acc[2] ^ acc[3] ^ acc[4] ^ acc[5] ^ acc[6] ^ acc[7];
    (void)sink;
    return 2.0 * 8 * n;
}

double kern_peak_f32_ref(int n)
{
    float acc[8] = {0};
    volatile float one = 1;
    float w = one;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 8; j++)
            acc[j] += w * (float)(i & 127);
    volatile float sink = acc[0] + acc[1] + acc[2] + acc[3] + acc[4] + acc[5] + acc[6] + acc[7];
    (void)sink;
    return 2.0 * 8 * n;
}
