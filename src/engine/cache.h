/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the cache that an engine opens; for the commands that say what it takes. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "model/model.h"

#define ENGINE_BLK_TOK 32

/* n_blk blocks for tokens of all layers; for those with a window as many as n_seq sequences can see
 * in steps of n_tok tokens, and a quarter of n_blk for what is kept; never more than n_blk. Of
 * recurrent states one for each sequence and one beside (sl_score), and engine_n_snap. */
struct dev_kv_shape engine_kv_shape(const struct arch_cfg *c, const struct model_dims *d,
                                    enum dev_kv_type type, int n_blk, int n_seq, int n_tok);
/* Snapshots of recurrent states that the prefix tree keeps. */
static inline int engine_n_snap(int n_seq)
{
    return 2 * n_seq + 8;
}
/* Has any layer, of any rank, its cache in that group? */
bool engine_kv_has(const struct arch_cfg *c, enum dev_kv_kind kind);
/* Groups of blocks that sequences have tables of: the first ones. */
int engine_n_table(const sl_engine *e);
/* Positions that the layers with a window see, at most; 0 = none has one. */
int engine_kv_window(const struct arch_cfg *c);

#endif
