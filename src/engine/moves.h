/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that change ranks while steps go on: what every rank does for it (moves.c), and what home
 * decides (rebalance.c). */
#ifndef ENGINE_MOVES_H
#define ENGINE_MOVES_H

#include "base/rd.h"
#include "engine/engine_internal.h"

#define ENGINE_MOVES_MAX 16 /* experts that are read together */

/* Slot gets expert, which lies in slot `from` until then. */
struct engine_move {
    int32_t slot, expert, from;
};

#define ENGINE_PULL_BYTES 4096 /* of a row of what ranks give each other */
#define ENGINE_PULL_ROWS 1024  /* at a time, at most */

/* What home says: READ these of a layer, n of them; ASK: are all there? (where ranks give each
 * other experts they do so for n rows first); USE them from now on. */
enum { MOVES_READ = 16, MOVES_ASK, MOVES_USE };

enum engine_moved { MOVED_BUSY = 1, MOVED_READY, MOVED_FAILED };

struct engine_mover; /* a rank's */
struct engine_mover_opts {
    model *net;
    dist *end;
    struct model_dims dims;
    int n_layer, n_slot; /* n_slot: of all ranks */
    int n_spare, mbps;
    bool peer; /* experts come from the memory of a rank that has them */
};
/* With a helper thread, which reads. Errors: NOMEM, IO. */
sl_status engine_mover_open(const struct engine_mover_opts *o, struct engine_mover **out,
                            sl_err *err) BASE_MUST_USE;
void engine_mover_close(struct engine_mover *m); /* before the model; NULL is legal */
/* Obey: n moves of a layer follow in r. Errors: INTERNAL. */
sl_status engine_mover_hear(struct engine_mover *m, uint32_t what, int layer, int n,
                            struct rd *r, sl_err *err) BASE_MUST_USE;
/* Home: how it went, as of the last ASK. *rank: who failed, -1 = what was read differs. */
enum engine_moved engine_mover_state(const struct engine_mover *m, int *rank);

#endif
