/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a device is, measured by its own operators. */
#ifndef DEV_FIGURES_H
#define DEV_FIGURES_H

#include "dev/dev.h"

/* What its operators reach: bytes/s of a product's weights, operations/s of one with many tokens;
 * seconds of a launch beyond those, and from the host to an idle device or back; bytes/s of copies.
 * host_*: what a stand-in says of the CPU beside it; 0 = unknown. Measured on an open device that
 * has nothing yet, in about a second; what is made for it stays until dev_close. Errors: as
 * dev_mat_load, dev_alloc, dev_prog_run. */
struct dev_figures {
    double read, ops, lat_s, hand_s, bus;
    double host_read, host_ops;
    bool is_told; /* by a stand-in */
};
sl_status dev_figures_get(dev *d, struct dev_figures *out, sl_err *err) BASE_MUST_USE;

/* The most tokens of a step in which the CPU runs whole layers of a model of that width as one,
 * where no rank shares its matrices. */
int dev_figures_fused(int d_model);

#endif
