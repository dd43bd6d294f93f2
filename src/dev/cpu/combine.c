/* SPDX-License-Identifier: Apache-2.0 */
/* The forms in which experts' outputs are taken (enum dev_combine). Of q8 a row is a power of two
 * for each 32 values, all of them first, and then a byte for each value. */
#include <math.h>

#include "base/fp.h"
#include "dev/cpu/cpu.h"

#define GROUP 32
#define IS_ZERO (-128) /* in place of the power of two */
#define IS_NAN 127     /* a value of the group is not finite: all become so */
#define POWER_MIN (-100)
#define ROUND 0x1.8p23f /* added, it leaves the nearest whole number, of ties the even one */

static float power_of_two(int e)
{
    return fp_from_bits((uint32_t)(e + 127) << 23);
}

static int8_t round_group(const float *x, int n, int8_t *q)
{
    float most = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    for (int i = 0; i < GROUP; i++)
        q[i] = 0;
    if (!finite) return IS_NAN;
    int e = 0;
    (void)frexpf(most, &e);
    e = BASE_MAX(e - 7, POWER_MIN); /* most * 2^-e is below 128 */
    if (most * power_of_two(-e) >= 127.5f) e++;
    float inv = power_of_two(-e);
    bool zero = true;
    for (int i = 0; i < n; i++) {
        float v = x[i] * inv + ROUND;
        q[i] = (int8_t)(int)(v - ROUND);
        zero = zero && q[i] == 0;
    }
    return zero ? IS_ZERO : (int8_t)e;
}

static void open_group(int8_t e, const int8_t *q, int n, float *y)
{
    float d = e == IS_ZERO ? 0.0f : e == IS_NAN ? NAN : power_of_two(e);
    for (int i = 0; i < n; i++)
        y[i] = (float)q[i] * d;
}

static void pack_q8(const float *x, int n, int8_t *out)
{
    int n_group = (n + GROUP - 1) / GROUP;
    for (int g = 0; g < n_group; g++)
        out[g] =
            round_group(x + g * GROUP, BASE_MIN(GROUP, n - g * GROUP), out + n_group + g * GROUP);
}

void dev_cpu_combine_pack(enum dev_combine form, const float *x, int n, float *words)
{
    int n_word = dev_combine_words(form, n);
    uint16_t *half = (uint16_t *)(void *)words;
    if (form == DEV_COMBINE_F32) {
        memcpy(words, x, (size_t)n * sizeof *x);
        return;
    }
    words[n_word - 1] = 0; /* what is not used */
    if (form == DEV_COMBINE_Q8) {
        pack_q8(x, n, (int8_t *)words);
        return;
    }
    for (int i = 0; i < n; i++)
        half[i] = fp_f32_to_bf16(x[i]);
}

void dev_cpu_combine_unpack(enum dev_combine form, const float *words, int n, int at, int n_y,
                            float *y)
{
    const uint16_t *half = (const uint16_t *)(const void *)words + at;
    const int8_t *power = (const int8_t *)words, *q = power + (n + GROUP - 1) / GROUP;
    if (form == DEV_COMBINE_F32) memcpy(y, words + at, (size_t)n_y * sizeof *y);
    for (int i = 0; form == DEV_COMBINE_BF16 && i < n_y; i++)
        y[i] = fp_bf16_to_f32(half[i]);
    for (int i = 0; form == DEV_COMBINE_Q8 && i < n_y; i += GROUP)
        open_group(power[(at + i) / GROUP], q + at + i, BASE_MIN(GROUP, n_y - i), y + i);
}

void dev_cpu_combine_round(enum dev_combine form, const float *x, int n, float *y)
{
    int8_t q[GROUP];
    if (form == DEV_COMBINE_F32) memcpy(y, x, (size_t)n * sizeof *y);
    for (int i = 0; form == DEV_COMBINE_BF16 && i < n; i++)
        y[i] = fp_bf16_to_f32(fp_f32_to_bf16(x[i]));
    for (int i = 0; form == DEV_COMBINE_Q8 && i < n; i += GROUP) {
        int k = BASE_MIN(GROUP, n - i);
        int8_t e = round_group(x + i, k, q);
        open_group(e, q, k, y + i);
    }
}
