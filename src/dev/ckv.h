/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of attention over rows that are keys and values at once, and of entries that stand for
 * windows of tokens (DeepSeek-V4): as those of dev/dev.h. */
#ifndef DEV_CKV_H
#define DEV_CKV_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dev_kv dev_kv;

/* Layers of a cache's group that are stored alike, of a group whose layers are not: its first
 * n_layer ones, those of the part after it follow. A row of d_k values, d_v 0, is of `every`
 * positions (at least 1): it lies in the block of the last of them. Beside it there are an index
 * key of d_i values (dev_kv_group.d_i is 0), and of every position d_raw values in f32. */
struct dev_kv_part {
    int n_layer, every, d_i, d_raw;
};
#define DEV_KV_PARTS 6

/* Entries: of each window of `every` tokens a row of d values, which is stored in a layer of a
 * group (with index as its index key) by the step that has the window's last token. Of token t
 *
 *   c[t], z[t] + ape[pos % every]
 *
 * are stored first, f32, from value raw_at on of what the layer raw_layer of group raw_group has of
 * a position (dev_kv_part.d_raw). Entry w, each channel for itself, is
 *
 *   e = sum_j softmax_j(z_j) c_j,   then rmsnorm(e) * norm,
 *
 * over the tokens j of window w; with overlap c and z are 2 d wide, and j goes over the first
 * halves of window w - 1, where there is one, and the second halves of window w. Of the result the
 * last n_rot values are rotated by pairs, as by dev_rope at position w * every. A block of the
 * cache is whole windows, or a window whole blocks. */
struct dev_compress {
    dev_kv *kv;
    int raw_group, raw_layer, raw_at;
    int group, layer;
    bool index, overlap;
    int d, every;
    const float *c, *z; /* [T, d], or [T, 2 d] */
    const float *ape;   /* [every, d], or [every, 2 d] */
    const float *norm;  /* [d] */
    float eps;
    int n_rot;
    const float *freq; /* [n_rot / 2], host, as of dev_rope */
    float mscale;
};
/* Values of a position that are kept for one, from raw_at on. */
static inline int dev_compress_raw(int d, bool overlap)
{
    return overlap ? 4 * d : 2 * d;
}
#define DEV_ENTRY_EVERY 128 /* tokens of an entry, at most; with overlap half of them */
#define DEV_ENTRY_WIDTH 512 /* of an entry, at most */

/* Attention of n_head queries over rows of one head that are keys and values: y[t, h, :] =
 * softmax(scale * q k^T, sink) k. The rows are those of the last n_window positions up to the
 * token's own, in a layer of a group, and with every > 0 entries, in layer more_layer of group
 * more: of the (pos + 1) / every that are whole all, or with pick, where they are more than n_pick,
 * those that row t names, rising. A sink is one more score, without a row. */
struct dev_attn_ckv {
    const dev_kv *kv;
    int group, layer, n_head, d;
    float scale;
    const float *q;    /* [T, n_head, d] */
    float *y;          /* [T, n_head, d] */
    const float *sink; /* [n_head], or NULL */
    int n_window;
    int more, more_layer, every;
    const int32_t *pick; /* [T, n_pick], or NULL */
    int n_pick;
};
/* Entries that are whole at a position. */
static inline int dev_entries_at(int pos, int every)
{
    return every ? (pos + 1) / every : 0;
}

#endif
