/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of many values. */
#ifndef BASE_ARGMAX_H
#define BASE_ARGMAX_H

/* The index of the largest of n values, the lowest of equals; -1 when any is not a number. n > 0.
 */
int argmax_f32(const float *v, int n);

#endif
