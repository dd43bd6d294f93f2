/* SPDX-License-Identifier: Apache-2.0 */
/* Room for the arrays of a step. */
#include "engine/room.h"

#include <string.h>

#include "base/mem.h"

sl_status engine_array(size_t n, size_t size, void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, size, &p, err));
    memcpy(out, &p, sizeof p);
    return SL_OK;
}

sl_status engine_room_open(struct step_room *r, const struct step_most *most, sl_err *err)
{
    size_t n_tok = (size_t)most->n_tok, n_seq = (size_t)most->n_seq, n_row = (size_t)most->n_row;
    r->ld_blk = most->ld_blk;
    SL_TRY(engine_array(n_tok, sizeof *r->ids, &r->ids, err));
    SL_TRY(engine_array(n_tok, sizeof *r->pos, &r->pos, err));
    SL_TRY(engine_array(n_seq + 1, sizeof *r->seq_tok0, &r->seq_tok0, err));
    SL_TRY(engine_array(n_seq, sizeof *r->seat, &r->seat, err));
    SL_TRY(engine_array(n_seq, sizeof *r->n_prompt, &r->n_prompt, err));
    SL_TRY(engine_array(n_seq, sizeof *r->n_draft, &r->n_draft, err));
    SL_TRY(engine_array(3 * (size_t)most->n_copy, sizeof *r->copy, &r->copy, err));
    SL_TRY(engine_array(n_row, sizeof *r->row_tok, &r->row_tok, err));
    for (int g = 0; g < most->n_table; g++)
        SL_TRY(engine_array(n_seq * (size_t)r->ld_blk, sizeof *r->blk[g], &r->blk[g], err));
    SL_TRY(engine_array(n_seq, sizeof *r->keep, &r->keep, err));
    return engine_array(n_row, sizeof *r->row_want, &r->row_want, err);
}

void engine_room_close(struct step_room *r)
{
    mem_free(r->ids);
    mem_free(r->pos);
    mem_free(r->seq_tok0);
    mem_free(r->seat);
    mem_free(r->n_prompt);
    mem_free(r->n_draft);
    mem_free(r->copy);
    mem_free(r->row_tok);
    for (int g = 0; g < STEP_TABLES; g++)
        mem_free(r->blk[g]);
    mem_free(r->keep);
    mem_free(r->row_want);
}

struct dev_step engine_room_step(const struct step_room *r, int n_tok, int n_seq, int n_row)
{
    return (struct dev_step){.n_tok = n_tok,
                             .n_seq = n_seq,
                             .ids = r->ids,
                             .pos = r->pos,
                             .seq_tok0 = r->seq_tok0,
                             .blk = {r->blk[DEV_KV_PAGED], r->blk[DEV_KV_WINDOW]},
                             .ld_blk = r->ld_blk,
                             .seat = r->seat,
                             .n_prompt = r->n_prompt,
                             .copy = r->copy,
                             .n_row = n_row,
                             .row_tok = r->row_tok};
}
