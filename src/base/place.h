/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table in an order that they say themselves. */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

/* The index of the row that i others come before: those with places by these, then those with 0, in
 * both the first of equals first. -1: there are not so many of the n rows. */
static inline int base_placed(const int *place, int n, int i)
{
    for (int r = 0; r < n; r++) {
        int before = 0;
        for (int k = 0; k < n; k++) {
            int a = place[k], b = place[r];
            before += a == b ? k < r : a && (!b || a < b);
        }
        if (before == i) return r;
    }
    return -1;
}

#endif
