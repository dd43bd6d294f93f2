/* SPDX-License-Identifier: Apache-2.0 */
/* What the writers write, the readers read. */
#include <unistd.h>

#include "base/mem.h"
#include "io/write.h"
#include "io_make.h"
#include "os/os.h"
#include "test.h"

static const char *path_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof path, "/tmp/sluice-test-write-%ld-%s", (long)getpid(), name);
    return path;
}

static void write_it(enum io_kind kind, const char *path, io_out **out)
{
    sl_err err;
    io_out *o = NULL;
    ASSERT_OK(io_out_open(path, kind, &o, &err));
    io_out_str(o, "general.name", "a \"b\"\n", 6);
    if (kind == IO_GGUF) {
        io_out_u32(o, "n", 7);
        io_out_u64(o, "big", 1ull << 40);
        io_out_f32(o, "f", 0.25f);
        io_out_bool(o, "yes", true);
    }
    const int64_t shape[2] = {3, 5};
    io_out_tensor(o, "a", TENSOR_U8 + (kind == IO_GGUF ? TENSOR_I8 - TENSOR_U8 : 0), 2, shape);
    io_out_tensor(o, "scalar", TENSOR_F32, 0, NULL);
    io_out_tensor(o, "b", TENSOR_F16, 1, shape);
    ASSERT_OK(io_out_begin(o, &err));
    *out = o;
}

static void read_it(enum io_kind kind, const char *path)
{
    sl_err err;
    io_model *m;
    ASSERT_OK(io_open(path, false, &m, &err));
    assert_int_equal(io_model_kind(m), kind);
    assert_int_equal(io_n_tensor(m), 3);
    const struct tensor *a = io_find(m, "a"), *b = io_find(m, "b"), *s = io_find(m, "scalar");
    assert_true(a->n_dim == 2 && a->shape[0] == 3 && a->shape[1] == 5 && s->n_dim == 0 &&
                b->type == TENSOR_F16);
    for (int i = 0; i < 15; i++)
        assert_int_equal(((const uint8_t *)a->data)[i], i + 1);
    assert_memory_equal(s->data, "\x10\x11\x12\x13", 4);
    assert_memory_equal(b->data, "\x14\x15\x16\x17\x18\x19", 6);
    if (kind == IO_GGUF) {
        uint64_t n;
        double f;
        bool yes;
        const char *p;
        ASSERT_OK(io_meta_u64(m, "big", &n, &err));
        assert_true(n == 1ull << 40);
        ASSERT_OK(io_meta_f64(m, "f", &f, &err));
        ASSERT_OK(io_meta_bool(m, "yes", &yes, &err));
        assert_true(f == 0.25 && yes);
        ASSERT_OK(io_meta_str(m, "general.name", &p, &n, &err));
        assert_true(n == 6 && memcmp(p, "a \"b\"\n", 6) == 0);
    }
    io_close(m);
}

TEST(io_write_then_read_gives_the_same)
{
    for (int kind = IO_GGUF; kind <= IO_HF; kind++)
        for (size_t piece = 1; piece <= 25; piece += 6) { /* pieces cross the borders of tensors */
            sl_err err;
            io_out *o;
            uint8_t data[25];
            const char *path = path_of("x");
            for (int i = 0; i < 25; i++)
                data[i] = (uint8_t)(i + 1);
            write_it((enum io_kind)kind, path, &o);
            for (size_t at = 0; at < 25; at += piece)
                ASSERT_OK(io_out_write(o, data + at, BASE_MIN(piece, 25 - at), &err));
            assert_int_equal(os_path_kind(path), OS_NONE);
            ASSERT_OK(io_out_commit(o, &err));
            read_it((enum io_kind)kind, path);
            assert_int_equal(unlink(path), 0);
        }
}

TEST(io_write_copies_metadata_of_every_type)
{
    struct make *f = make_file("GGUF u32=3 u64=0 u64=7 s=s u32=8 s=text s=a u32=9 u32=8 u64=3 s=x "
                               "s= s=yz s=i u32=5 u32=-9 s=n u32=9 "
                               "u32=3 u64=2 u16=5 u16=-1 s=split.count u32=2 u16=1 "
                               "s=general.alignment u32=4 u32=64 s=d u32=12 f64=1e300");
    sl_err err;
    io_model *m, *m2;
    io_out *o;
    uint8_t *copy;
    char a[60], b[60];
    const char *path = path_of("copy");
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    ASSERT_OK(io_out_open(path, IO_GGUF, &o, &err));
    for (int i = 0; i < io_n_meta(m); i++)
        io_out_copy(o, m, i);
    ASSERT_OK(io_out_commit(o, &err));
    ASSERT_OK(io_open(path, false, &m2, &err));
    assert_int_equal(io_n_meta(m2), 5); /* the layout of the old file is not copied */
    for (int i = 0, k = 0; i < io_n_meta(m); i++) {
        if (strncmp(io_meta_key(m, i), "split.", 6) == 0 ||
            strncmp(io_meta_key(m, i), "general.", 8) == 0)
            continue;
        assert_string_equal(io_meta_key(m, i), io_meta_key(m2, k));
        io_meta_text(m, i, a, sizeof a);
        io_meta_text(m2, k, b, sizeof b);
        assert_string_equal(a, b);
        k++;
    }
    struct io_array arr;
    uint64_t n;
    ASSERT_OK(io_meta_array(m2, "a", &arr, &err));
    assert_memory_equal(io_array_str(&arr, 2, &n), "yz", 2);
    io_close(m2);
    io_close(m);
    free(copy);
    free(f);
    assert_int_equal(unlink(path), 0);
}

TEST(io_write_refuses_what_can_not_be_written)
{
    static const struct {
        enum io_kind kind;
        const char *name;
        enum tensor_dtype type;
        int n_dim;
        int64_t shape[6];
        const char *text;
    } t[] = {
        {IO_GGUF, "", TENSOR_F32, 1, {1}, "tensor 0 is empty"},
        {IO_GGUF, "w", TENSOR_U8, 1, {1}, "U8 can not be written here"},
        {IO_GGUF, "w", TENSOR_Q4_0, 1, {31}, "Q4_0 can not be written"},
        {IO_GGUF, "w", TENSOR_F32, 5, {1, 1, 1, 1, 1}, "5 dimensions"},
        {IO_GGUF, "w", TENSOR_F32, 1, {0}, "dimension 0 is 0"},
        {IO_GGUF, "w", TENSOR_F32, 1, {-1}, "dimension 0 is -1"},
        {IO_GGUF, "w", TENSOR_F32, 1, {1ll << 62}, "its size overflows"},
        {IO_HF, "w", TENSOR_Q4_0, 1, {32}, "Q4_0 can not be written here"},
        {IO_HF, "w", TENSOR_F32, 2, {1ll << 40, 1ll << 40}, "dimension 1 is"},
    };
    const char *path = path_of("bad");
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        sl_err err = {0};
        io_out *o;
        ASSERT_OK(io_out_open(path, t[i].kind, &o, &err));
        io_out_tensor(o, t[i].name, t[i].type, t[i].n_dim, t[i].shape);
        ASSERT_STATUS(io_out_begin(o, &err), SL_REQUEST);
        if (!strstr(err.text, t[i].text)) fail_msg("%s (want %s)", err.text, t[i].text);
        io_out_abort(o);
        assert_int_equal(os_path_kind(path), OS_NONE);
    }
    sl_err err;
    io_out *o;
    write_it(IO_GGUF, path, &o);
    ASSERT_OK(io_out_write(o, "0123456789", 10, &err));
    ASSERT_STATUS(io_out_commit(o, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "tensor 0 of 3 is not complete"));
    write_it(IO_HF, path, &o);
    ASSERT_OK(io_out_write(o, "0123456789012345678901234", 25, &err));
    ASSERT_STATUS(io_out_write(o, "x", 1, &err), SL_REQUEST);
    io_out_abort(o);
    io_out_abort(NULL);
    ASSERT_OK(io_out_open(path, IO_HF, &o, &err));
    io_out_u32(o, "n", 1);
    ASSERT_STATUS(io_out_commit(o, &err), SL_REQUEST);
    assert_int_equal(os_path_kind(path), OS_NONE);
    ASSERT_STATUS(io_out_open("/nonexistent/x", IO_GGUF, &o, &err), SL_NOTFOUND);
}

TEST(io_write_survives_every_failing_allocation)
{
    const char *path = path_of("nomem");
    sl_status st = SL_NOMEM;
    for (uint64_t k = 1; st == SL_NOMEM; k++) {
        sl_err err;
        io_out *o = NULL;
        const int64_t shape[1] = {2};
        int64_t before = mem_used(MEM_MISC);
        mem_fail_at(k, 0);
        st = io_out_open(path, k % 2 ? IO_GGUF : IO_HF, &o, &err);
        if (st == SL_OK) {
            io_out_str(o, "key", "value", 5);
            io_out_tensor(o, "t", TENSOR_F32, 1, shape);
            st = io_out_begin(o, &err);
            if (st == SL_OK) st = io_out_write(o, "01234567", 8, &err);
            if (st == SL_OK)
                st = io_out_commit(o, &err);
            else
                io_out_abort(o);
        }
        mem_fail_at(0, 0);
        assert_true(st == SL_OK || st == SL_NOMEM);
        assert_int_equal(mem_used(MEM_MISC), before);
        assert_true(k < 50);
    }
    assert_int_equal(unlink(path), 0);
}
