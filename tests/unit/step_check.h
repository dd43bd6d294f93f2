/* SPDX-License-Identifier: Apache-2.0 */
/* Is a step that was read within the limits? For tests and fuzz targets. */
#ifndef STEP_CHECK_H
#define STEP_CHECK_H

#include "engine/record.h"

static inline bool step_outside(const int32_t *v, int n, int least, int end)
{
    for (int i = 0; v && i < n; i++)
        if (v[i] < least || v[i] >= end) return true;
    return false;
}

static inline bool step_bad_blocks(const struct dev_step *s, const struct record_limits *max)
{
    for (int q = 0; q < s->n_seq; q++) {
        int n_tok = s->seq_tok0[q + 1] - s->seq_tok0[q], most = BASE_MIN(n_tok - 1, DEV_STATE_BACK);
        if (n_tok < 1 || (s->n_draft && step_outside(s->n_draft + q, 1, 0, most + 1))) return true;
        int n = s->pos[s->seq_tok0[q + 1] - 1] / max->blk_tok + 1;
        for (int g = 0; g < DEV_KV_GROUPS; g++) {
            if (!s->blk[g] != !max->n_blk[g]) return true;
            if (s->blk[g] && step_outside(s->blk[g] + (int64_t)q * s->ld_blk, n, 0, max->n_blk[g]))
                return true;
        }
    }
    return false;
}

static inline bool step_bad(const struct dev_step *s, const struct record_limits *max)
{
    if (s->n_tok < 1 || s->n_tok > max->n_tok || s->n_seq < 1 || s->n_seq > max->n_seq ||
        s->n_row < 0 || s->n_row > max->n_row || s->n_copy < 0 || s->n_copy > max->n_copy ||
        s->pass < 0 || s->pass >= max->n_pass || s->want > 15)
        return true;
    for (int i = 0; i < 3 * s->n_copy; i += 3)
        if (step_outside(s->copy + i, 1, 0, DEV_KV_GROUPS) ||
            step_outside(s->copy + i + 1, 2, 0, max->n_blk[s->copy[i]]))
            return true;
    return s->seq_tok0[0] || s->seq_tok0[s->n_seq] != s->n_tok ||
           step_outside(s->ids, s->n_tok, 0, max->n_vocab) ||
           step_outside(s->pos, s->n_tok, 0, max->n_ctx) ||
           step_outside(s->row_tok, s->n_row, 0, s->n_tok) ||
           step_outside(s->hidden_row, s->n_tok, 0, max->n_tok) ||
           step_outside(s->seat, s->n_seq, 0, max->n_seq + 1) ||
           step_outside(s->n_prompt, s->n_seq, 0, max->n_ctx + 1) || step_bad_blocks(s, max);
}

#endif
