/* SPDX-License-Identifier: Apache-2.0 */
/* The one conversion that is too long to be inline. */
#include "base/fp.h"

#include <math.h>

uint8_t fp_f32_to_e4m3(float f)
{
    uint8_t sign = (uint8_t)((fp_to_bits(f) >> 24) & 0x80u);
    float a = fabsf(f);
    if (isnan(f)) return (uint8_t)(sign | 0x7fu);
    if (a >= 448.0f) return (uint8_t)(sign | 0x7eu);
    if (a < 0x1p-6f)
        return (uint8_t)(sign | (uint8_t)nearbyintf(a * 0x1p9f)); /* 8 is the first normal */
    uint32_t b = fp_to_bits(a);
    b += 0x7ffffu + ((b >> 20) & 1u);
    uint32_t code = (b - 0x3c000000u) >> 20;
    return (uint8_t)(sign | (code > 0x7eu ? 0x7eu : code));
}
