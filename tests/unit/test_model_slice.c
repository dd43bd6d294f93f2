/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slices: of every matrix that is divided each row is with exactly one rank. */
#include <string.h>

#include "model/model.h"
#include "test.h"

static int64_t rows_of(const struct arch_cfg *c, enum arch_role role)
{
    int64_t head = c->n_head;
    switch (role) {
    case ROLE_Q:
    case ROLE_Q_B:
        return head * c->d_head;
    case ROLE_K:
    case ROLE_V:
        return (int64_t)c->n_head_kv * c->d_head;
    case ROLE_KV_B:
        return head * (c->d_nope + c->d_v);
    case ROLE_K_B:
        return head * c->kv_lora;
    case ROLE_V_B:
        return head * c->d_v;
    case ROLE_GATE:
    case ROLE_UP:
        return c->d_ff;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
        return c->d_ff_expert;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
        return (int64_t)c->d_ff_expert * c->n_shared;
    case ROLE_MTP_HEAD:
    case ROLE_MTP_EMBED:
        return c->n_vocab;
    default:
        return c->d_model;
    }
}

static bool is_whole(enum arch_role role)
{
    static const enum arch_role whole[] = {ROLE_ROUTER,    ROLE_Q_A,       ROLE_KV_A,
                                           ROLE_ATTN_NORM, ROLE_FFN_NORM,
                                           ROLE_Q_NORM};
    for (int i = 0; i < BASE_COUNT_OF(whole); i++)
        if (role == whole[i]) return true;
    return false;
}

static const enum arch_role divided[] = {
    ROLE_Q,        ROLE_K,          ROLE_V,       ROLE_O,         ROLE_Q_B,
    ROLE_KV_B,     ROLE_K_B,        ROLE_V_B,     ROLE_GATE,      ROLE_UP,
    ROLE_DOWN,     ROLE_GATE_EXPS,  ROLE_UP_EXPS, ROLE_DOWN_EXPS, ROLE_GATE_SHEXP,
    ROLE_UP_SHEXP, ROLE_DOWN_SHEXP, ROLE_MTP_EH,  ROLE_MTP_HEAD,  ROLE_MTP_EMBED};

static const struct arch_cfg cfgs[] = {
    {.d_model = 576, .n_head = 9, .n_head_kv = 3, .d_head = 64, .d_ff = 1536, .n_vocab = 49152},
    {.d_model = 40,
     .n_head = 6,
     .n_head_kv = 2,
     .d_head = 24,
     .d_ff = 56,
     .n_vocab = 301,
     .d_ff_expert = 24,
     .n_shared = 2,
     .n_expert = 5},
    {.d_model = 64,
     .n_head = 5,
     .n_head_kv = 5,
     .d_head = 24,
     .kv_lora = 32,
     .d_nope = 16,
     .d_rope = 8,
     .d_v = 16,
     .d_ff = 96,
     .d_ff_expert = 40,
     .n_shared = 1,
     .n_vocab = 320},
    {.d_model = 64, .n_head = 4, .n_head_kv = 1, .d_head = 16, .d_ff = 8, .n_vocab = 20},
};

TEST(model_slices_of_all_ranks_are_every_matrix_exactly_once)
{
    for (int i = 0; i < BASE_COUNT_OF(cfgs); i++)
        for (int n_rank = 1; n_rank <= 4; n_rank++)
            for (int k = 0; k < BASE_COUNT_OF(divided); k++) {
                const struct arch_cfg *c = &cfgs[i];
                int64_t rows = rows_of(c, divided[k]), next = 0;
                for (int rank = 0; rank < n_rank; rank++) {
                    struct dist_among a = {rank, n_rank, NULL};
                    struct model_dims d = model_dims_of(c, &a);
                    struct model_slice s = model_slice_of(c, &d, divided[k], rows);
                    if (divided[k] == ROLE_K || divided[k] == ROLE_V) { /* perhaps once more */
                        bool again = s.row0 < next;
                        if (again) assert_true(n_rank > c->n_head_kv);
                        if (again) assert_true(s.row0 + s.n_row <= next);
                        if (again || s.n_row == 0) continue;
                    }
                    assert_int_equal(s.row0, next);
                    assert_true(s.n_row >= 0);
                    bool by_head = divided[k] == ROLE_KV_B || divided[k] == ROLE_K_B ||
                                   divided[k] == ROLE_V_B; /* stacks, a matrix a head */
                    if (!by_head) assert_true(s.row0 % 16 == 0 || s.row0 == rows);
                    next += s.n_row;
                }
                assert_int_equal(next, rows);
            }
}

TEST(model_slices_keep_query_heads_with_their_key_head)
{
    for (int i = 0; i < BASE_COUNT_OF(cfgs); i++)
        for (int n_rank = 1; n_rank <= 4; n_rank++)
            for (int rank = 0; rank < n_rank; rank++) {
                const struct arch_cfg *c = &cfgs[i];
                struct model_dims d = model_dims_of(c, &(struct dist_among){rank, n_rank, NULL});
                int per = c->kv_lora ? 1 : c->n_head / c->n_head_kv;
                bool shared = n_rank > c->n_head_kv && d.n_head_kv == 1;
                assert_true(d.head0 >= d.head_kv0 * per);
                assert_true(d.head0 + d.n_head <= (d.head_kv0 + d.n_head_kv) * per);
                if (!shared) assert_int_equal(d.n_head, d.n_head_kv * per);
            }
    for (int n_rank = 1; n_rank <= 9; n_rank++) /* each query head is with one rank, none is idle */
        for (int rank = 0, next = 0; rank < n_rank; rank++) {
            struct model_dims d = model_dims_of(&cfgs[0], &(struct dist_among){rank, n_rank, NULL});
            assert_int_equal(d.head0, next);
            assert_true(d.n_head > 0 && d.n_head_kv > 0);
            next += d.n_head;
            if (rank == n_rank - 1) assert_int_equal(next, 9);
        }
    struct model_dims half = model_dims_of(&cfgs[0], &(struct dist_among){1, 3, NULL});
    assert_int_equal(half.n_head, 3);
    assert_int_equal(half.head0, 3);
}

/* The same where ranks are not alike, of more ranks than key heads, too. */
TEST(model_slices_by_weight_are_every_matrix_exactly_once)
{
    static const uint16_t weight[][6] = {
        {3, 2, 1}, {1, 2, 3, 4}, {1, 1, 1, 97, 1, 1}, {9, 1}, {1, 9}, {1, 1, 1, 1, 1, 100}};
    static const int n_rank[] = {3, 4, 6, 2, 2, 6};
    for (int i = 0; i < BASE_COUNT_OF(cfgs); i++)
        for (int w = 0; w < BASE_COUNT_OF(weight); w++)
            for (int k = 0; k < BASE_COUNT_OF(divided); k++) {
                const struct arch_cfg *c = &cfgs[i];
                int64_t rows = rows_of(c, divided[k]), next = 0;
                struct dist_among a = {0, n_rank[w], weight[w]};
                bool keys = divided[k] == ROLE_K || divided[k] == ROLE_V;
                for (a.rank = 0; a.rank < a.n; a.rank++) {
                    struct model_dims d = model_dims_of(c, &a), one = model_dims_of(c, &a);
                    one = model_dims_beside(c, &one, 0);
                    one = model_dims_beside(c, &one, a.rank);
                    assert_memory_equal(&one, &d, sizeof d);
                    struct model_slice s = model_slice_of(c, &d, divided[k], rows);
                    bool again = keys && s.row0 < next;
                    if (again) assert_true(a.n > c->n_head_kv && s.row0 + s.n_row <= next);
                    if (again || s.n_row == 0) continue;
                    assert_int_equal(s.row0, next);
                    next += s.n_row;
                }
                assert_int_equal(next, rows);
            }
    struct dist_among a = {0, 3, weight[0]};
    static const int heads[] = {3, 3, 3}, columns[] = {288, 192, 96}, width[] = {768, 512, 256};
    for (; a.rank < 3; a.rank++) {
        struct model_dims d = model_dims_of(&cfgs[0], &a);
        assert_int_equal(d.n_head, heads[a.rank]); /* of three key heads each has one */
        assert_int_equal(model_slice_of(&cfgs[0], &d, ROLE_O, 0).n_row, columns[a.rank]);
        assert_int_equal(model_slice_of(&cfgs[0], &d, ROLE_UP, 0).n_row, width[a.rank]);
    }
}

/* More ranks than key heads: every key head has some, and a rank's queries follow its weight. */
TEST(model_slices_by_weight_leave_no_head_out)
{
    static const struct arch_cfg c = {.n_head = 24, .n_head_kv = 2, .d_head = 64};
    static const uint16_t weight[][4] = {{3, 2, 1}, {1, 1, 100}, {100, 1, 1}, {1, 2, 3, 6}};
    static const int n_rank[] = {3, 3, 3, 4};
    static const int head[][4] = {{12, 8, 4}, {6, 6, 12}, {12, 6, 6}, {2, 4, 6, 12}};
    for (int w = 0; w < BASE_COUNT_OF(weight); w++) {
        struct dist_among a = {0, n_rank[w], weight[w]};
        for (int next = 0; a.rank < a.n; a.rank++) {
            struct model_dims d = model_dims_of(&c, &a);
            assert_int_equal(d.head0, next);
            assert_int_equal(d.n_head, head[w][a.rank]);
            assert_true(d.n_head_kv == 1 && d.head_kv0 == next / 12);
            next += d.n_head;
        }
    }
}

TEST(model_slices_leave_what_every_rank_needs_whole)
{
    for (int role = 0; role < N_ROLE; role++) {
        struct model_dims d = model_dims_of(&cfgs[2], &(struct dist_among){1, 2, NULL});
        struct model_slice s = model_slice_of(&cfgs[2], &d, (enum arch_role)role, 77);
        if (is_whole((enum arch_role)role)) assert_true(s.row0 == 0 && s.n_row == 77);
    }
}

/* A packed file is a row of units: cut into the slices of any number of ranks, all of it comes
 * back. */
TEST(model_slices_of_a_packed_file_are_its_units)
{
    static uint8_t bytes[(3 * 4) * (96 + 32)];
    static const float scale[6] = {1, 2, 3, 4, 5, 6};
    struct io_pack_mat m = {.name = "m",
                            .fmt = {"a", "b"},
                            .n = 3,
                            .is_pair = 1,
                            .rows = 56,
                            .cols = 8,
                            .unit_bytes = {96, 32},
                            .n_unit = 12,
                            .scale = scale,
                            .data = bytes};
    struct arch_cfg c = {.n_head = 1, .n_head_kv = 1, .d_head = 16, .d_ff_expert = 56};
    sl_err err;
    for (int n_rank = 1; n_rank <= 4; n_rank++)
        for (int i = 0; i < m.n; i++) {
            const uint8_t *at[2] = {bytes + i * 4 * 96, bytes + 12 * 96 + i * 4 * 32};
            for (int rank = 0; rank < n_rank; rank++) {
                struct model_dims d = model_dims_of(&c, &(struct dist_among){rank, n_rank, NULL});
                struct model_slice s = model_slice_of(&c, &d, ROLE_UP_EXPS, 56);
                struct io_pack_rows r;
                ASSERT_OK(io_pack_rows(&m, i, s.row0, s.n_row, &r, &err));
                for (int k = 0; k < 2; k++) {
                    assert_ptr_equal(r.data[k], at[k]);
                    at[k] += r.n_bytes[k];
                }
                assert_true(r.scale[0] == scale[2 * i]);
            }
            assert_ptr_equal(at[0], bytes + (i + 1) * 4 * 96);
            assert_ptr_equal(at[1], bytes + 12 * 96 + (i + 1) * 4 * 32);
        }
    struct io_pack_rows r;
    assert_int_equal(io_pack_rows(&m, 0, 8, 16, &r, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "whole units of 16"));
    assert_int_equal(io_pack_rows(&m, 0, 16, 8, &r, &err), SL_REQUEST);
    assert_int_equal(io_pack_rows(&m, 3, 0, 16, &r, &err), SL_REQUEST);
    assert_int_equal(io_pack_rows(&m, 0, 48, 16, &r, &err), SL_REQUEST);
}
