/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays that a struct dev_step points into: those of a lane's steps (lanes.c), and of steps
 * that are read (record_read.c). */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "base/status.h"
#include "dev/dev.h"

/* Groups of the cache that sequences may have tables of: the first ones; a state is a seat's. */
#define STEP_TABLES DEV_KV_STATE

/* What a step may be at most, and how wide its tables are. */
struct step_most {
    int n_tok, n_seq, n_row, n_copy;
    int n_table, ld_blk;
};

struct step_room {
    int32_t *ids, *pos;                 /* [n_tok] */
    int32_t *seq_tok0;                  /* [n_seq + 1] */
    int32_t *seat, *n_prompt, *n_draft; /* [n_seq] */
    int32_t *copy;                      /* [n_copy, 3] */
    int32_t *row_tok;                   /* [n_row] */
    int32_t *blk[STEP_TABLES];          /* [n_seq, ld_blk]; NULL from n_table on */
    struct dev_keep *keep;              /* [n_seq] */
    uint8_t *row_want;                  /* [n_row] */
    int ld_blk;
};

/* n zeroed elements of size bytes for steps (MEM_SCRATCH) into *out, a pointer. Errors: NOMEM: it
 * stays as it is. */
sl_status engine_array(size_t n, size_t size, void *out, sl_err *err) BASE_MUST_USE;
/* Errors: NOMEM: only closing it is legal. */
sl_status engine_room_open(struct step_room *r, const struct step_most *most,
                           sl_err *err) BASE_MUST_USE;
void engine_room_close(struct step_room *r); /* a zeroed one is legal */
/* A step of so many in the room, without copies, keep, row_want and n_draft: nothing is wanted of
 * it yet. */
struct dev_step engine_room_step(const struct step_room *r, int n_tok, int n_seq, int n_row);

#endif
