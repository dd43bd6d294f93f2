/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF: good files read right, and bad ones refused with the byte (docs/reliability.md F1, F2, F6,
 * F7). */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io_cases.h"
#include "os/os.h"
#include "test.h"

#define HEAD(n_tensor, n_kv) "GGUF u32=3 u64=" #n_tensor " u64=" #n_kv " "
/* One tensor "w" of F32 [ne] at offset 0. */
#define TENSOR_W "s=w u32=1 u64=8 u32=0 u64=0 pad=32 zero=32 "

static const struct bad_file bad[] = {
    {"empty", "", "0 bytes", SL_FORMAT},
    {"magic cut", "GGU", "3 bytes", SL_FORMAT},
    {"magic wrong", "GGML u32=3 u64=0 u64=0", "byte 0: neither GGUF nor safetensors", SL_FORMAT},
    {"version cut", "GGUF u16=3", "byte 4: the file ends inside its version", SL_FORMAT},
    {"version 0", "GGUF u32=0 u64=0 u64=0", "byte 4: GGUF version 0", SL_UNSUPPORTED},
    {"version 1", "GGUF u32=1 u64=0 u64=0", "GGUF version 1", SL_UNSUPPORTED},
    {"version 4", "GGUF u32=4 u64=0 u64=0", "GGUF version 4", SL_UNSUPPORTED},
    {"big-endian", "GGUF hex=00000003 u64=0 u64=0", "a big-endian file", SL_UNSUPPORTED},
    {"counts cut", "GGUF u32=3 u64=1 u32=0", "byte 16: the file ends inside its counts", SL_FORMAT},
    {"2^32 tensors", HEAD(0x100000000, 0), "byte 8: 4294967296 tensors can not fit", SL_FORMAT},
    {"2^63 tensors", HEAD(0x8000000000000000, 0) "zero=100", "byte 8: 9223372036854775808 tensors",
     SL_FORMAT},
    {"2^64-1 tensors", HEAD(-1, 0) "zero=100", "byte 8: 18446744073709551615 tensors", SL_FORMAT},
    {"one tensor too many", HEAD(2, 0) TENSOR_W, "byte 57: the name of tensor 1 is empty",
     SL_FORMAT},
    {"tensors after a key", HEAD(2, 1) "s=k u32=4 u32=7", "byte 8: 2 tensors can not fit",
     SL_FORMAT},
    {"2^32 keys", HEAD(0, 0x100000000), "byte 16: 4294967296 keys can not fit", SL_FORMAT},
    {"2^64-1 keys", HEAD(0, -1) "zero=100", "byte 16: 18446744073709551615 keys", SL_FORMAT},
    {"key name long", HEAD(0, 1) "sn=-1,abcdefgh zero=16",
     "byte 24: the name of key 0 goes past the end", SL_FORMAT},
    {"key name over int32", HEAD(0, 1) "sn=0x80000001,abcdefgh zero=9",
     "byte 24: the name of key 0 goes past", SL_FORMAT},
    {"key name empty", HEAD(0, 1) "s= u32=4 u32=7 zero=9", "byte 24: the name of key 0 is empty",
     SL_FORMAT},
    {"key name not UTF-8", HEAD(0, 1) "u64=1 hex=ff u32=4 u32=7",
     "byte 24: the name of key 0 is not UTF-8", SL_FORMAT},
    {"key name with NUL", HEAD(0, 1) "u64=2 hex=6100 u32=4 u32=7", "has a control character",
     SL_FORMAT},
    {"key type cut", HEAD(0, 1) "s=abcdefg u16=4", "byte 39: the file ends inside abcdefg",
     SL_FORMAT},
    {"key type 13", HEAD(0, 1) "s=k u32=13 u32=7", "byte 33: key k: unknown value type 13",
     SL_FORMAT},
    {"key type 2^32-1", HEAD(0, 1) "s=k u32=-1 u32=7", "unknown value type 4294967295", SL_FORMAT},
    {"key twice", HEAD(0, 2) "s=k u32=4 u32=7 s=k u32=4 u32=8", "byte 41: key k is there twice",
     SL_FORMAT},
    {"value cut", HEAD(0, 1) "s=k u32=10 u32=7", "byte 37: the file ends inside k", SL_FORMAT},
    {"bool of 2", HEAD(0, 1) "s=k u32=7 u8=2", "byte 37: key k: a bool is 0 or 1, not 2",
     SL_FORMAT},
    {"string value long", HEAD(0, 1) "s=k u32=8 sn=9,abcdefgh",
     "byte 37: key k: the string goes past", SL_FORMAT},
    {"string value 2^63", HEAD(0, 1) "s=k u32=8 sn=0x8000000000000000,a",
     "byte 37: key k: the string", SL_FORMAT},
    {"array cut", HEAD(0, 1) "s=k u32=9 u32=4 u32=0", "byte 41: the file ends inside k", SL_FORMAT},
    {"array of arrays", HEAD(0, 1) "s=k u32=9 u32=9 u64=1 u32=4 u64=0",
     "byte 37: key k: arrays of arrays", SL_FORMAT},
    {"array of type 99", HEAD(0, 1) "s=k u32=9 u32=99 u64=1 u32=0",
     "array of unknown value type 99", SL_FORMAT},
    {"array 2^60 of u8", HEAD(0, 1) "s=k u32=9 u32=0 u64=0x1000000000000000 u32=0",
     "byte 41: key k: 1152921504606846976 elements can not fit in the 4 bytes left", SL_FORMAT},
    {"array that wraps", HEAD(0, 1) "s=k u32=9 u32=10 u64=0x2000000000000001 u64=0",
     "elements can not fit", SL_FORMAT},
    {"array one short", HEAD(0, 1) "s=k u32=9 u32=4 u64=3 u64=0", "3 elements can not fit in the 8",
     SL_FORMAT},
    {"array 2^60 of str", HEAD(0, 1) "s=k u32=9 u32=8 u64=0x1000000000000000 u64=0",
     "strings can not fit", SL_FORMAT},
    {"array string long", HEAD(0, 1) "s=k u32=9 u32=8 u64=2 s=ab sn=3,cd",
     "byte 59: key k: string 1 goes past", SL_FORMAT},
    {"array bool of 3", HEAD(0, 1) "s=k u32=9 u32=7 u64=2 hex=0103",
     "byte 50: key k: a bool is 0 or 1, not 3", SL_FORMAT},
    {"alignment 0", HEAD(0, 1) "s=general.alignment u32=4 u32=0", "byte 53: general.alignment is 0",
     SL_FORMAT},
    {"alignment 24", HEAD(0, 1) "s=general.alignment u32=4 u32=24",
     "general.alignment is 24, not a power", SL_FORMAT},
    {"alignment 2^31", HEAD(0, 1) "s=general.alignment u32=4 u32=0x80000000",
     "is 2147483648, not a", SL_FORMAT},
    {"alignment u64", HEAD(0, 1) "s=general.alignment u32=10 u64=32", "is u64, it must be u32",
     SL_FORMAT},
    {"alignment str", HEAD(0, 1) "s=general.alignment u32=8 s=32", "is str, it must be u32",
     SL_FORMAT},
    {"tensor name long", HEAD(1, 0) "sn=-1,w u32=1 u64=8 u32=0 u64=0",
     "byte 24: the name of tensor 0 goes past", SL_FORMAT},
    {"tensor name empty", HEAD(1, 0) "s= u32=1 u64=8 u32=0 u64=0 pad=32 zero=32",
     "tensor 0 is empty", SL_FORMAT},
    {"tensor name control", HEAD(1, 0) "u64=1 hex=0a u32=1 u64=8 u32=0 u64=0",
     "has a control character", SL_FORMAT},
    {"tensor twice",
     HEAD(2, 0) "s=w u32=1 u64=8 u32=0 u64=0 s=w u32=1 u64=8 u32=0 u64=32 pad=32 zero=64",
     "tensor w is there twice", SL_FORMAT},
    {"5 dimensions", HEAD(1, 0) "s=w u32=5 u64=1 u64=1 u64=1 u64=1 u64=1 u32=0 u64=0",
     "byte 33: tensor w: 5 dimensions, at most 4", SL_FORMAT},
    {"2^32-1 dimensions", HEAD(1, 0) "s=w u32=-1 u64=8 u32=0 u64=0", "4294967295 dimensions",
     SL_FORMAT},
    {"dimension 0", HEAD(1, 0) "s=w u32=1 u64=0 u32=0 u64=0", "byte 37: tensor w: dimension 0 is 0",
     SL_FORMAT},
    {"dimension -1", HEAD(1, 0) "s=w u32=2 u64=8 u64=-1 u32=0 u64=0",
     "byte 45: tensor w: dimension 1 is 1844", SL_FORMAT},
    {"product 2^64", HEAD(1, 0) "s=w u32=2 u64=0x100000000 u64=0x100000000 u32=0 u64=0",
     "the product of its", SL_FORMAT},
    {"product 2^63", HEAD(1, 0) "s=w u32=3 u64=0x200000 u64=0x200000 u64=0x200000 u32=24 u64=0",
     "the product of its", SL_FORMAT},
    {"bytes 2^64", HEAD(1, 0) "s=w u32=1 u64=0x4000000000000000 u32=0 u64=0", "its size overflows",
     SL_FORMAT},
    {"bytes 2^64 of F64", HEAD(1, 0) "s=w u32=1 u64=0x2000000000000000 u32=28 u64=0",
     "its size overflows", SL_FORMAT},
    {"two I8 that wrap the sum",
     HEAD(
         2,
         0) "s=a u32=1 u64=0x7fffffffffffffc0 u32=24 u64=0 s=b u32=1 u64=0x7fffffffffffffc0 u32=24 "
            "u64=0x7fffffffffffffc0 pad=32 zero=64",
     "do not fit in the file", SL_FORMAT},
    {"4 MB that stand for exabytes",
     HEAD(1, 0) "s=w u32=2 u64=0x400000 u64=0x10000000000 u32=2 u64=0 pad=32 zero=32",
     "do not fit in the file", SL_FORMAT},
    {"row no multiple of the block", HEAD(1, 0) "s=w u32=1 u64=33 u32=2 u64=0 pad=32 zero=64",
     "byte 45: tensor w: rows of 33 are no multiple of Q4_0's 32", SL_FORMAT},
    {"row of half a super-block", HEAD(1, 0) "s=w u32=2 u64=128 u64=2 u32=12 u64=0 pad=32 zero=144",
     "rows of 128 are no multiple of Q4_K's 256", SL_FORMAT},
    {"removed type", HEAD(1, 0) "s=w u32=1 u64=32 u32=4 u64=0",
     "byte 45: tensor w: type 4, Q4_2 (removed", SL_UNSUPPORTED},
    {"repacked type", HEAD(1, 0) "s=w u32=1 u64=32 u32=31 u64=0", "Q4_0_4_4 (removed",
     SL_UNSUPPORTED},
    {"activation type", HEAD(1, 0) "s=w u32=1 u64=256 u32=15 u64=0",
     "type 15, Q8_K (for activations", SL_UNSUPPORTED},
    {"IQ2_XXS past the end", HEAD(1, 0) "s=w u32=1 u64=256 u32=16 u64=0 pad=32 zero=65",
     "66 bytes at offset 0 do not fit", SL_FORMAT},
    {"ik type", HEAD(1, 0) "s=w u32=1 u64=256 u32=139 u64=0", "IQ4_K (ik_llama.cpp only)",
     SL_UNSUPPORTED},
    {"ik interleaved", HEAD(1, 0) "s=w u32=1 u64=256 u32=212 u64=0",
     "row-interleaved type (ik_llama.cpp", SL_UNSUPPORTED},
    {"type 2^32-1", HEAD(1, 0) "s=w u32=1 u64=256 u32=-1 u64=0", "type 4294967295, unknown",
     SL_UNSUPPORTED},
    {"offset unaligned", HEAD(1, 0) "s=w u32=1 u64=8 u32=0 u64=4 pad=32 zero=64",
     "byte 49: tensor w: offset 4 is no multiple of the alignment 32", SL_FORMAT},
    {"offset unaligned at 64",
     HEAD(1, 1) "s=general.alignment u32=4 u32=64 s=w u32=1 u64=8 u32=0 u64=32 pad=64 zero=96",
     "offset 32 is no multiple of the alignment 64", SL_FORMAT},
    {"offset past the end", HEAD(1, 0) "s=w u32=1 u64=8 u32=0 u64=32 pad=32 zero=32",
     "32 bytes at offset 32 do not fit", SL_FORMAT},
    {"offset 2^64-32", HEAD(1, 0) "s=w u32=1 u64=8 u32=0 u64=-32 pad=32 zero=32",
     "do not fit in the file", SL_FORMAT},
    {"one byte short", HEAD(1, 0) "s=w u32=1 u64=8 u32=0 u64=0 pad=32 zero=31",
     "32 bytes at offset 0 do not fit in the file's 95", SL_FORMAT},
    {"no data at all", HEAD(1, 0) "s=w u32=1 u64=8 u32=0 u64=0", "do not fit", SL_FORMAT},
    {"overlap",
     HEAD(2, 0) "s=a u32=1 u64=16 u32=0 u64=0 s=b u32=1 u64=8 u32=0 u64=32 pad=32 zero=64",
     "byte 128: tensors a and b overlap", SL_FORMAT},
    {"the same place twice",
     HEAD(2, 0) "s=a u32=1 u64=8 u32=0 u64=0 s=b u32=1 u64=8 u32=0 u64=0 pad=32 zero=64", "overlap",
     SL_FORMAT},
    {"a hole", HEAD(2, 0) "s=a u32=1 u64=8 u32=0 u64=0 s=b u32=1 u64=8 u32=0 u64=64 pad=32 zero=96",
     "byte 128: a hole of 32 bytes between the tensors a and b", SL_FORMAT},
    {"split.count negative", HEAD(0, 1) "s=split.count u32=5 u32=-1",
     "split.count is -1, it must not be negative", SL_FORMAT},
    {"split.count a string", HEAD(0, 1) "s=split.count u32=8 s=2",
     "split.count is str, it must be an integer", SL_FORMAT},
    {"split.count 65535", HEAD(0, 1) "s=split.count u32=2 u16=-1",
     "split.count is 65535, at most 1000", SL_FORMAT},
    {"a part alone", HEAD(0, 1) "s=split.count u32=2 u16=2", "one part of a split file", SL_FORMAT},
};

TEST(io_gguf_refuses_every_kind_of_bad_file)
{
    cases_refused("test.file", bad, BASE_COUNT_OF(bad));
    assert_true(BASE_COUNT_OF(bad) >= 45);
}

static const char *const good[] = {
    HEAD(0, 0),
    HEAD(1, 0) TENSOR_W,
    HEAD(1, 1) "s=general.alignment u32=4 u32=8 s=w u32=0 u32=0 u64=0 pad=8 zero=4",
    HEAD(2, 1) "s=k u32=8 s=value s=b u32=2 u64=32 u64=2 u32=2 u64=32 s=a u32=1 u64=8 u32=0 u64=0 "
               "pad=32 zero=68",
    HEAD(1, 3) "s=n u32=4 u32=7 s=arr u32=9 u32=8 u64=3 s=x s= s=yz s=f u32=6 f32=1.5 s=w u32=4 "
               "u64=2 u64=3 u64=4 u64=5 "
               "u32=30 u64=0 pad=32 zero=240",
    HEAD(0, 2) "s=e u32=9 u32=0 u64=0 s=b u32=9 u32=7 u64=3 hex=000101",
    "GGUF u32=2 u64=1 u64=0 " TENSOR_W,
    HEAD(2, 0) "s=q u32=1 u64=256 u32=14 u64=0 s=i u32=1 u64=5 u32=26 u64=224 pad=32 zero=244",
};

TEST(io_gguf_cut_anywhere_is_refused)
{
    cases_cut("test.file", good, BASE_COUNT_OF(good));
}

TEST(io_gguf_any_wrong_byte_is_clean)
{
    cases_flipped("test.file", good, BASE_COUNT_OF(good));
}

TEST(io_gguf_gives_tensors_and_metadata)
{
    sl_err err;
    io_model *m = NULL;
    uint8_t *copy;
    struct make *f = make_file(good[4]);
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    assert_int_equal(io_model_kind(m), IO_GGUF);
    const struct tensor *t = io_find(m, "w");
    assert_non_null(t);
    assert_true(t->n_dim == 4 && t->shape[0] == 5 && t->shape[3] == 2 && t->type == TENSOR_BF16);
    assert_true(tensor_rows(t) == 60 && tensor_cols(t) == 2 && t->n_bytes == 240);
    assert_ptr_equal(t->data, copy + t->offset);
    assert_ptr_equal(io_findf(m, "%c", 'w'), t);
    assert_null(io_find(m, "v"));
    struct weight w;
    ASSERT_OK(io_weight(m, "w", &w, &err));
    assert_true(w.rows == 60 && w.cols == 2 && w.row_bytes == 4 && w.tensor_scale == 1.0f);
    ASSERT_STATUS(io_weight(m, "nope", &w, &err), SL_NOTFOUND);
    assert_non_null(strstr(err.text, "nope"));

    uint64_t n;
    double d;
    struct io_array a;
    ASSERT_OK(io_meta_u64(m, "n", &n, &err));
    ASSERT_OK(io_meta_f64(m, "f", &d, &err));
    assert_true(n == 7 && d == 1.5);
    ASSERT_OK(io_meta_array(m, "arr", &a, &err));
    assert_true(a.type == IO_STR && a.n == 3);
    static const char *const want[] = {"x", "", "yz"};
    for (uint64_t i = 0; i < 3; i++) {
        const char *s = io_array_str(&a, i, &n);
        assert_true(n == strlen(want[i]) && memcmp(s, want[i], n) == 0);
    }
    assert_null(io_array_str(&a, 3, &n));
    assert_int_equal(io_n_meta(m), 3);
    assert_string_equal(io_meta_key(m, 1), "arr");
    char text[40];
    io_meta_text(m, 1, text, sizeof text);
    assert_string_equal(text, "[str x 3]");
    io_meta_text(m, 2, text, sizeof text);
    assert_string_equal(text, "f32 1.5");
    io_close(m);
    free(copy);
    free(f);
}

/* Row: a value of each type; columns: what u64, f64, bool, str and array make of it (F7). 'y'
 * taken, 't' refused by type, 'n' negative. */
TEST(io_meta_getters_take_their_types_only)
{
    static const struct {
        const char *value, *want;
    } t[] = {
        {"u32=0 u8=200", "yyttt"},      {"u32=1 u8=-5", "nyttt"},
        {"u32=1 u8=5", "yyttt"},        {"u32=2 u16=-1", "yyttt"},
        {"u32=3 u16=-1", "nyttt"},      {"u32=4 u32=-1", "yyttt"},
        {"u32=5 u32=-1", "nyttt"},      {"u32=6 f32=nan", "tyttt"},
        {"u32=7 u8=1", "ttytt"},        {"u32=8 s=1", "tttyt"},
        {"u32=9 u32=4 u64=0", "tttty"}, {"u32=10 u64=-1", "yyttt"},
        {"u32=11 u64=-1", "nyttt"},     {"u32=11 u64=9", "yyttt"},
        {"u32=12 f64=1", "tyttt"},      {"u32=9 u32=8 u64=1 s=x", "tttty"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char words[200];
        snprintf(words, sizeof words, HEAD(0, 1) "s=key %s", t[i].value);
        struct make *f = make_file(words);
        sl_err err = {0};
        io_model *m = NULL;
        uint8_t *copy;
        ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
        uint64_t u, n;
        double d;
        bool b;
        const char *s;
        struct io_array a;
        for (int g = 0; g < 5; g++) {
            memset(&err, 0, sizeof err);
            sl_status st = g == 0   ? io_meta_u64(m, "key", &u, &err)
                           : g == 1 ? io_meta_f64(m, "key", &d, &err)
                           : g == 2 ? io_meta_bool(m, "key", &b, &err)
                           : g == 3 ? io_meta_str(m, "key", &s, &n, &err)
                                    : io_meta_array(m, "key", &a, &err);
            const char *text = t[i].want[g] == 't'   ? "it must be"
                               : t[i].want[g] == 'n' ? "must not be negative"
                                                     : "";
            if ((st == SL_OK) != (t[i].want[g] == 'y') || (st != SL_OK && st != SL_FORMAT) ||
                !strstr(err.text, text))
                fail_msg("\"%s\" getter %d: %d %s", t[i].value, g, st, err.text);
        }
        ASSERT_STATUS(io_meta_u64(m, "other", &u, &err), SL_NOTFOUND);
        io_close(m);
        free(copy);
        free(f);
    }
}

TEST(io_arrays_convert_their_elements)
{
    static const struct {
        const char *value;
        int64_t i;
        double f;
        bool is_int, is_num;
    } t[] = {
        {"u32=0 u64=2 hex=00fe", 254, 254, true, true},
        {"u32=1 u64=2 hex=00fe", -2, -2, true, true},
        {"u32=3 u64=2 u16=0 u16=-3", -3, -3, true, true},
        {"u32=5 u64=2 u32=0 u32=-4", -4, -4, true, true},
        {"u32=6 u64=2 f32=0 f32=2.5", 0, 2.5, false, true},
        {"u32=7 u64=2 hex=0001", 1, 0, true, false},
        {"u32=8 u64=2 s=a s=b", 0, 0, false, false},
        {"u32=10 u64=2 u64=0 u64=-1", 0, 0, false, false}, /* does not fit in an i64 */
        {"u32=11 u64=2 u64=0 u64=-1", -1, -1, true, true},
        {"u32=12 u64=2 f64=0 f64=-1e300", 0, -1e300, false, true},
    };
    for (int k = 0; k < BASE_COUNT_OF(t); k++) {
        char words[200];
        snprintf(words, sizeof words, HEAD(0, 1) "s=key u32=9 %s", t[k].value);
        struct make *f = make_file(words);
        sl_err err = {0};
        io_model *m = NULL;
        uint8_t *copy;
        struct io_array a;
        int64_t i = 0;
        double d = 0;
        ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
        ASSERT_OK(io_meta_array(m, "key", &a, &err));
        assert_int_equal(io_array_i64(&a, 1, &i), t[k].is_int);
        assert_int_equal(io_array_f64(&a, 1, &d), t[k].is_num);
        assert_true(!t[k].is_int || i == t[k].i);
        assert_true(!t[k].is_num || d == t[k].f);
        assert_false(io_array_i64(&a, 2, &i) || io_array_f64(&a, UINT64_MAX, &d));
        io_close(m);
        free(copy);
        free(f);
    }
}

/* What is freed stays for a while where ASan watches: about 100 KiB of each file. */
#ifdef __SANITIZE_ADDRESS__
#define RSS_MAX (4 << 20)
#else
#define RSS_MAX (1 << 20)
#endif

/* F6: what 1 KB claims costs neither memory nor time. */
TEST(io_gguf_small_file_with_big_claims_costs_nothing)
{
    static const char *const claim[] = {
        HEAD(0x1000000000000000, 0) "zero=1000",
        HEAD(0, 0x1000000000000000) "zero=1000",
        HEAD(0, 1) "sn=0x1000000000000000,k zero=990",
        HEAD(0, 1) "s=k u32=8 sn=0x1000000000000000,v zero=970",
        HEAD(0, 1) "s=k u32=9 u32=0 u64=0x1000000000000000 zero=970",
        HEAD(0, 1) "s=k u32=9 u32=8 u64=0x1000000000000000 zero=970",
        HEAD(0, 1) "s=k u32=9 u32=10 u64=0x1000000000000000 zero=970",
        HEAD(1, 0) "sn=0x1000000000000000,w zero=990",
        HEAD(1, 0) "s=w u32=1 u64=0x1000000000000000 u32=24 u64=0 zero=960",
        "u64=0x1000000000000000 raw={ zero=1000",
        "u64=100000000 raw={ zero=1000",
    };
    int64_t rss = os_rss_peak();
    for (int i = 0; i < BASE_COUNT_OF(claim); i++) {
        sl_err err;
        io_model *m = NULL;
        uint8_t *copy;
        struct make *f = make_file(claim[i]);
        int64_t start = clock_now_ns();
        ASSERT_STATUS(make_open(f->p, f->n, &m, &copy, &err), SL_FORMAT);
        assert_true(clock_now_ns() - start < 10000000);
        free(copy);
        free(f);
    }
    assert_true(os_rss_peak() - rss <= RSS_MAX);
}

/* Every key is found again, and no other. */
TEST(io_index_of_many_keys_finds_them_all)
{
    struct make *f = make_file(HEAD(0, 1800));
    for (int i = 0; i < 1800; i++) {
        char word[40];
        int n = snprintf(word, sizeof word, "s=key.%d", i);
        make_word(f, word, (size_t)n);
        make_uint(f, 4, 4);
        make_uint(f, (uint64_t)i * 3, 4);
    }
    sl_err err;
    io_model *m = NULL;
    uint8_t *copy;
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    for (int i = 0; i < 1800; i++) {
        char key[40];
        uint64_t v = 0;
        snprintf(key, sizeof key, "key.%d", i);
        ASSERT_OK(io_meta_u64(m, key, &v, &err));
        assert_int_equal(v, i * 3);
    }
    io_close(m);
    free(copy);
    free(f);
}

TEST(io_gguf_survives_every_failing_allocation)
{
    cases_no_memory("test.file", good, BASE_COUNT_OF(good));
}

/* Types without a reader: the file can be looked at, and the tensor is refused by its name and type
 * when its numbers are wanted. */
TEST(io_gguf_opens_types_that_it_can_not_dequantise)
{
    static const struct {
        int id, cols, bytes;
    } t[] = {{16, 256, 66},  {17, 256, 74}, {18, 256, 98}, {19, 256, 50},
             {21, 256, 110}, {22, 256, 82}, {29, 256, 56}, {34, 256, 54},
             {35, 256, 66},  {41, 128, 18}, {42, 64, 18}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        sl_err err;
        io_model *m = NULL;
        struct weight w;
        char words[200], want[80];
        snprintf(words, sizeof words,
                 HEAD(1, 0) "s=w u32=2 u64=%d u64=3 u32=%d u64=0 pad=32 zero=%d", t[i].cols,
                 t[i].id, 3 * t[i].bytes);
        struct make *f = make_file(words);
        uint8_t *copy;
        ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
        const struct tensor *x = io_find(m, "w");
        assert_true(x && x->n_bytes == 3 * (uint64_t)t[i].bytes && io_tensor_is_matrix(m, 0));
        ASSERT_STATUS(io_weight(m, "w", &w, &err), SL_UNSUPPORTED);
        snprintf(want, sizeof want, "tensor w: %s is not supported; read are F32 F16 BF16 Q4_0",
                 tensor_gguf_id_text((uint32_t)t[i].id));
        if (!strstr(err.text, want)) fail_msg("%s (want %s)", err.text, want);
        io_close(m);
        free(copy);
        free(f);
    }
}

TEST(io_weight_of_nvfp4_takes_its_second_scale)
{
    static const struct {
        const char *scale, *text;
        float want[2]; /* of the two experts; 0 = refused */
    } t[] = {
        {"u32=1 u64=1 u32=0 u64=160 pad=32 zero=160 f32=3", "", {3, 3}},
        {"u32=1 u64=2 u32=0 u64=160 pad=32 zero=160 f32=3 f32=5", "", {3, 5}},
        {"u32=1 u64=3 u32=0 u64=160 pad=32 zero=160 f32=3 f32=5 f32=7",
         "e.scale: 3 values of F32",
         {0, 0}},
        {"u32=1 u64=2 u32=1 u64=160 pad=32 zero=160 u32=0", "2 values of F16", {0, 0}},
        {"u32=1 u64=2 u32=0 u64=160 pad=32 zero=160 f32=3 f32=nan",
         "scale of expert 1 is not finite",
         {0, 0}},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char words[300];
        sl_err err = {0};
        io_model *m = NULL;
        uint8_t *copy;
        struct weight w;
        snprintf(
            words, sizeof words,
            "GGUF u32=3 u64=2 u64=0 s=e.weight u32=3 u64=64 u64=2 u64=2 u32=40 u64=0 s=e.scale %s",
            t[i].scale);
        struct make *f = make_file(words);
        ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
        memset(&err, 0, sizeof err);
        uint8_t *blk = copy + io_find(m, "e.weight")->offset;
        for (int k = 0; k < 144; k++)
            blk[k] = k % 36 < 4 ? 0x38 : 0x22; /* scale 1, code 2 = 1.0 */
        sl_status st = io_weight(m, "e.weight", &w, &err);
        if (st == SL_OK) st = weight_check(&w, &err);
        if ((st == SL_OK) != (t[i].want[0] > 0) || !strstr(err.text, t[i].text))
            fail_msg("%d: %d %s", i, st, err.text);
        for (int e = 0; st == SL_OK && e < 2; e++) {
            float a[64], b[64];
            struct weight one = weight_rows(&w, 2 * e, 2);
            assert_true(one.tensor_scale == t[i].want[e] && !one.part_scale);
            weight_dequant(&w, 2 * e + 1, 0, 64, a);
            weight_dequant(&one, 1, 0, 64, b);
            for (int k = 0; k < 64; k++)
                assert_true(a[k] == t[i].want[e] && a[k] == b[k]);
        }
        io_close(m);
        free(copy);
        free(f);
    }
}
