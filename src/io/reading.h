/* SPDX-License-Identifier: Apache-2.0 */
/* Giving up a model's pages while its weights are read once, from one end to the other: memory for
 * what is made of them comes from there. */
#ifndef IO_READING_H
#define IO_READING_H

#include "io/io.h"

/* Pages leave this process, and the system's page cache too where that makes reading faster: on a
 * virtual machine whose host takes free pages back, memory touched for the first time comes at 0.1
 * to 1 GB/s, and pages just given up come at once. Whether it does is measured on the way. */
struct io_reading {
    const io_model *m;
    bool may_evict;
    int64_t n_done;           /* bytes of weights so far */
    int64_t t0, byte0, disk0; /* where the stretch began: ns, n_done, bytes read from disks */
    double slow;              /* bytes/s before it was tried; 0 = not tried */
    bool on, off;             /* off: tried, no gain */
    struct {
        const uint8_t *begin, *end;
    } run[2]; /* source bytes given up so far without a hole, for each of the two tensors that are
                 read together */
    int last; /* the run that grew last */
    /* where parts are read: what comes next, of which the first n_asked were asked for, n_past
     * bytes of them not read yet */
    bool parts;
    const struct weight *ahead[2]; /* [n_ahead] each; NULL */
    int n_ahead, n_asked;
    int64_t n_past;
};

/* Begin now; m stays until the last io_reading_done. may_evict false: the page cache keeps what it
 * has (for a reader that comes again). */
void io_reading_begin(struct io_reading *r, const io_model *m, bool may_evict);
/* From now on parts of the files are read, and nothing beside them: a rank's. */
void io_reading_parts(struct io_reading *r);
/* n weights, or rows of them, are read next, one after the other, and each with that of b where b
 * is not NULL; they stay until then. Nothing happens where whole files are read. */
void io_reading_next(struct io_reading *r, const struct weight *a, const struct weight *b, int n);
/* w, a weight of the model or rows of one, will not be read again. */
void io_reading_done(struct io_reading *r, const struct weight *w);
void io_reading_end(struct io_reading *r);

#endif
