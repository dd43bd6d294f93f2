/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files: a model runs from one with the same tokens; no cut of one opens; no flipped byte of
 * header or tables does; a flipped byte of a matrix is found by the check; tables that lie under
 * right checksums are refused or run without harm. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/pack.h"
#include "os/os.h"
#include "sluice.h"
#include "test.h"

static const char *const models[] = {"qwen3.gguf",
                                     "qwen3_moe",
                                     "q_mla.gguf",
                                     "deepseek_v3_fp8",
                                     "deepseek_v3_split-00002-of-00003.gguf",
                                     "q_moe.gguf",
                                     "deepseek_v32",
                                     "glm_moe_dsa.gguf",
                                     "minimax_m3_mxfp8",
                                     "glm5_next"};

static const char *source(int i, char *buf, size_t n)
{
    snprintf(buf, n, TEST_TINY "/%s", models[i]);
    return buf;
}

static char *packed(int i, char *buf, size_t n)
{
    char src[512];
    sl_pack_info info;
    sl_err err;
    snprintf(buf, n, "pack_test_%ld_%d.packed", (long)getpid(), i);
    if (sl_pack(source(i, src, sizeof src), buf, NULL, &info, &err)) fail_msg("%s", err.text);
    assert_int_equal(strcmp(info.path, buf), 0);
    return buf;
}

struct tokens {
    int n;
    int32_t id[16];
};

static void on_event(void *user, const sl_event *ev)
{
    struct tokens *t = user;
    if (ev->finish == SL_FINISH_ERROR) fail_msg("%s", ev->error);
    if (ev->token >= 0 && t->n < 16) t->id[t->n++] = ev->token;
}

/* Tokens that a model makes; status of opening it. */
static sl_status run(const char *name, sl_pack_cache cache, sl_acts acts, struct tokens *t,
                     int *is_packed, sl_err *err)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5};
    sl_model_opts mo = {.pack_cache = cache};
    sl_engine_opts eo = {.n_thread = 2, .n_ctx = 64, .acts = acts};
    sl_model *m = NULL;
    sl_engine *e = NULL;
    uint64_t id;
    memset(t, 0, sizeof *t);
    sl_status st = sl_model_open(name, &mo, &m, err);
    if (!st) st = sl_engine_open(m, &eo, &e, err);
    if (!st) {
        sl_engine_info info;
        sl_request q = {.ids = ids,
                        .n_ids = 5,
                        .max_tokens = 8,
                        .ignore_eos = 1,
                        .on_event = on_event,
                        .user = t};
        sl_engine_info_get(e, &info);
        if (is_packed) *is_packed = info.packed;
        st = sl_submit(e, &q, &id, err);
        while (!st && sl_pending(e))
            st = sl_step(e, err);
    }
    sl_engine_close(e);
    sl_model_close(m);
    return st;
}

TEST(a_packed_file_runs_like_its_source)
{
    for (int i = 0; i < BASE_COUNT_OF(models); i++) {
        char src[512], dst[128];
        struct tokens a, b;
        sl_err err;
        sl_pack_info info;
        int is_packed = 0;
        packed(i, dst, sizeof dst);
        assert_int_equal(
            run(source(i, src, sizeof src), SL_PACK_IGNORE, SL_ACTS_AUTO, &a, &is_packed, &err),
            SL_OK);
        assert_int_equal(is_packed, 0);
        if (run(dst, SL_PACK_USE, SL_ACTS_AUTO, &b, &is_packed, &err)) fail_msg("%s", err.text);
        assert_int_equal(is_packed, 1);
        assert_int_equal(a.n, 8);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(sl_pack_check(dst, NULL, &info, &err), SL_OK);
        unlink(dst);
    }
}

static uint8_t *read_file(const char *path, uint64_t *n)
{
    char *p = NULL;
    sl_err err;
    if (os_read_file(path, (uint64_t)1 << 30, &p, n, &err)) fail_msg("%s", err.text);
    return (uint8_t *)p;
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Right checksums over whatever stands there. */
static void seal(uint8_t *p)
{
    put64(p + 48, hash_bytes(p + get64(p + 32), get64(p + 40), 0));
    put64(p + 88, hash_bytes(p, 88, 0));
}

static sl_status opens(const uint8_t *p, uint64_t n, sl_err *err)
{
    io_model *m = NULL;
    sl_status st = io_open_bytes("test.packed", p, n, &m, err);
    io_close(m);
    return st;
}

/* A status, and a line that names the file. */
static void assert_refused(sl_status st, const sl_err *err, uint64_t at)
{
    if (st == SL_OK) fail_msg("byte %llu: opened", (unsigned long long)at);
    if (!strstr(err->text, "test.packed") && !strstr(err->text, "config.json"))
        fail_msg("byte %llu: %s", (unsigned long long)at, err->text);
}

TEST(no_cut_and_no_flipped_byte_of_header_or_tables_opens)
{
    char dst[128];
    uint64_t n;
    sl_err err;
    uint8_t *p = read_file(packed(0, dst, sizeof dst), &n);
    unlink(dst);
    assert_int_equal(opens(p, n, &err), SL_OK);
    uint64_t tables = get64(p + 32);
    for (uint64_t cut = 0; cut < n; cut += cut < 200 || cut >= tables ? 1 : 4093) {
        uint8_t *q = malloc(cut ? cut : 1); /* of its own, so that reading past it is seen */
        memcpy(q, p, cut);
        assert_int_not_equal(opens(q, cut, &err), SL_OK);
        free(q);
    }
    for (uint64_t at = 0; at < n; at = at == 95 ? tables : at + 1) {
        p[at] ^= (uint8_t)(1u << (at % 8));
        assert_refused(opens(p, n, &err), &err, at);
        p[at] ^= (uint8_t)(1u << (at % 8));
    }
    mem_free(p);
}

TEST(a_flipped_byte_of_a_matrix_is_found_by_the_check)
{
    char dst[128];
    sl_pack_info info;
    sl_err err;
    struct stat st;
    packed(1, dst, sizeof dst);
    int fd = open(dst, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    io_pack *p = NULL;
    assert_int_equal(io_pack_open(dst, &p, &err), SL_OK);
    for (int i = 0; i < io_pack_n_mat(p); i++) {
        const struct io_pack_mat *m = io_pack_mat_at(p, i);
        off_t at = (off_t)(m->offset + m->n_bytes * (uint64_t)i / (uint64_t)io_pack_n_mat(p));
        uint8_t b = 0;
        assert_int_equal(pread(fd, &b, 1, at), 1);
        b ^= 0x10;
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
        assert_int_equal(sl_pack_check(dst, NULL, &info, &err), SL_FORMAT);
        assert_non_null(strstr(err.text, m->name));
        b ^= 0x10;
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
    }
    io_pack_close(p);
    assert_int_equal(sl_pack_check(dst, NULL, &info, &err), SL_OK);
    close(fd);
    unlink(dst);
}

/* A file whose maker knows how checksums are made: every 8 bytes of the tables replaced by extreme
 * numbers. */
TEST(tables_that_lie_under_right_checksums_do_no_harm)
{
    static const uint64_t evil[] = {0,         1, UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 32,
                                    0xfffffff0};
    for (int model = 0; model < 2; model++) {
        char dst[128];
        uint64_t n, n_open = 0, n_all = 0;
        sl_err err;
        uint8_t *p = read_file(packed(model, dst, sizeof dst), &n);
        uint64_t tables = get64(p + 32), end = BASE_MIN(n - 8, tables + 6000);
        for (uint64_t at = 8; at < end; at = at == 80 ? tables : at + 1)
            for (int k = 0; k < BASE_COUNT_OF(evil); k++, n_all++) {
                uint64_t old = get64(p + at);
                put64(p + at, evil[k]);
                bool inside = at >= tables;
                if (inside)
                    seal(p);
                else
                    put64(p + 88, hash_bytes(p, 88, 0));
                n_open += opens(p, n, &err) == SL_OK;
                put64(p + at, old);
            }
        seal(p);
        assert_int_equal(opens(p, n, &err), SL_OK);
        assert_in_range(n_open, 1, n_all * 9 / 10); /* times, checksums, small tensors are free */
        mem_free(p);
        unlink(dst);
    }
}

/* The same with engines: shapes that the model does not expect, units that do not fit the format.
 */
TEST(an_engine_refuses_matrices_that_do_not_fit)
{
    char dst[128];
    uint64_t n;
    sl_err err;
    struct tokens t;
    int n_refused = 0;
    uint8_t *p = read_file(packed(0, dst, sizeof dst), &n);
    uint64_t tables = get64(p + 32), at = tables + 4;
    for (uint32_t i = 0, k = p[tables]; i < k; i++)
        at += 8 + get64(p + at) + 24;
    at += 4;
    for (int i = 0; i < 40; i++) { /* of the first matrix: name, formats, numbers, scales */
        uint8_t old = p[at + (uint64_t)i * 2];
        p[at + (uint64_t)i * 2] ^= 0x21;
        seal(p);
        assert_int_equal(os_write_file(dst, p, n, &err), SL_OK);
        sl_status st = run(dst, SL_PACK_USE, SL_ACTS_AUTO, &t, NULL, &err);
        n_refused += st != SL_OK;
        if (st && !strstr(err.text, dst) && !strstr(err.text, "matrix")) fail_msg("%s", err.text);
        p[at + (uint64_t)i * 2] = old;
    }
    assert_true(n_refused > 20);
    mem_free(p);
    unlink(dst);
}

TEST(the_reference_mode_takes_no_rounded_weights)
{
    char dst[128];
    struct tokens t;
    sl_err err;
    int i = 2; /* MLA */
    packed(i, dst, sizeof dst);
    io_pack *p = NULL;
    assert_int_equal(io_pack_open(dst, &p, &err), SL_OK);
    bool exact = io_pack_exact(p);
    io_pack_close(p);
    assert_int_equal(run(dst, SL_PACK_USE, SL_ACTS_F32, &t, NULL, &err),
                     exact ? SL_OK : SL_UNSUPPORTED);
    unlink(dst);
}
