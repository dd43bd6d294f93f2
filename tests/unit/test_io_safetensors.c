/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: good files read right, bad ones refused with the byte (docs/reliability.md F1,
 * F4). */
#include "base/mem.h"
#include "io_cases.h"
#include "test.h"

#define F32_1(b, e) "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #b "," #e "]}"

static const struct bad_file bad[] = {
    {"no header", "u64=0", "byte 8: the header does not start with '{'", SL_FORMAT},
    {"zeros", "zero=100", "not a safetensors file but zeros: the download did not end", SL_FORMAT},
    {"a picture", "hex=89504e470d0a1a0a0000", "not a safetensors file: it starts with 89 50 4e 47",
     SL_FORMAT},
    {"length cut", "u32=4", "byte 4: the file ends inside the header's length (4 bytes in all)",
     SL_FORMAT},
    {"header of 1 byte", "json={", "byte 8: the header does not start with '{'", SL_FORMAT},
    {"header longer than the file", "u64=11 raw={}",
     "byte 0: a header of 11 bytes does not fit in the file's 10", SL_FORMAT},
    {"header over 100 MB", "u64=100000001 raw={}",
     "byte 0: a header of 100000001 bytes, at most 100000000 are read", SL_FORMAT},
    {"header cut", "json={\"a\":", "byte 13: the JSON ends", SL_FORMAT},
    {"space before the brace", "json=~{}", "byte 8: the header does not start", SL_FORMAT},
    {"an array", "json=[]", "byte 8: the header does not start", SL_FORMAT},
    {"after the header's end", "json={}x", "byte 10: bytes after the end of the header's JSON",
     SL_FORMAT},
    {"NUL padding", "u64=3 raw={} u8=0", "byte 10: bytes after the end", SL_FORMAT},
    {"no colon", "json={\"a\"}", "'}' where ':' should be", SL_FORMAT},
    {"no comma", "json={\"a\":1\"b\":2}", "byte 14: '\"' where ',' should be", SL_FORMAT},
    {"comma at the end", "json={\"a\":" F32_1(0, 4) ",} zero=4", "'}' where a string should be",
     SL_FORMAT},
    {"name not a string", "json={1:2}", "byte 9: '1' where a string", SL_FORMAT},
    {"entry a number", "json={\"a\":1}", "byte 13: '1' where '{' should be", SL_FORMAT},
    {"entry an array", "json={\"a\":[]}", "'[' where '{' should be", SL_FORMAT},
    {"string not closed", "json={\"a", "the JSON ends where the end of a string", SL_FORMAT},
    {"string not UTF-8", "u64=7 raw={\" hex=ff raw=\":1}", "byte 10: a string that is not UTF-8",
     SL_FORMAT},
    {"string with a control byte", "u64=7 raw={\" u8=10 raw=\":1}",
     "byte 10: byte 0x0a where a character", SL_FORMAT},
    {"bad escape", "json={\"\\x\":1}", "byte 11: 'x' where an escape", SL_FORMAT},
    {"half a surrogate pair", "json={\"\\ud800\":1}", "byte 10: half a surrogate pair", SL_FORMAT},
    {"low surrogate alone", "json={\"\\udc00\":1}", "half a surrogate pair", SL_FORMAT},
    {"name with a NUL", "json={\"a\\u0000b\":" F32_1(0, 4) "} zero=4",
     "name of tensor 0 has a control", SL_FORMAT},
    {"empty name", "json={\"\":" F32_1(0, 4) "} zero=4", "name of tensor 0 is empty", SL_FORMAT},
    {"nested 65 deep",
     "json={\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]"
     "]]]]]]]]]]]]]]]]]]]]]]]]]"
     "]]]]]]]]]]]]]]]]]]]]]]]]]}",
     "JSON deeper than 64", SL_FORMAT},
    {"brackets that do not match", "json={\"a\":[1}]}", "'}' where ',' should be", SL_FORMAT},
    {"number with a leading zero", "json={\"a\":{\"shape\":[01]}}", "'1' where the end of a number",
     SL_FORMAT},
    {"dtype missing", "json={\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}} zero=4",
     "field \"dtype\" is missing", SL_FORMAT},
    {"shape missing", "json={\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}} zero=4",
     "field \"shape\" is missing", SL_FORMAT},
    {"data_offsets missing", "json={\"a\":{\"dtype\":\"F32\",\"shape\":[1]}} zero=4",
     "field \"data_offsets\" is missing", SL_FORMAT},
    {"field twice",
     "json={\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} "
     "zero=4",
     "field \"dtype\" is there twice", SL_FORMAT},
    {"unknown field",
     "json={\"a\":{\"dtype\":\"F32\",\"x\":1,\"shape\":[1],\"data_offsets\":[0,4]}} zero=4",
     "unknown field \"x\"", SL_FORMAT},
    {"dtype a number", "json={\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}} zero=4",
     "'7' where a string", SL_FORMAT},
    {"shape an object",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}} zero=4",
     "'{' where '[' should be", SL_FORMAT},
    {"negative dimension",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}} zero=4",
     "'-' where a number of 0 or more", SL_FORMAT},
    {"fractional dimension",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}} zero=4",
     "'.' where the end of an integer", SL_FORMAT},
    {"dimension 2^64",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}} "
     "zero=4",
     "a number over 2^64", SL_FORMAT},
    {"product that wraps",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],\"data_offsets\":[0,4]}} "
     "zero=4",
     "shape: the product overflows", SL_FORMAT},
    {"bytes that wrap",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}} "
     "zero=4",
     "its size overflows", SL_FORMAT},
    {"one offset", "json={\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}} zero=4",
     "']' where ',' should be", SL_FORMAT},
    {"three offsets",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}} zero=4",
     "',' where ']' should be", SL_FORMAT},
    {"ends before it begins", "json={\"a\":" F32_1(4, 0) "} zero=4",
     "ends at 0 before it begins at 4", SL_FORMAT},
    {"ends past the file", "json={\"a\":" F32_1(0, 8) "} zero=4",
     "ends at 8, the file has 4 bytes of data", SL_FORMAT},
    {"size against shape",
     "json={\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}} zero=4",
     "data_offsets give 4 bytes, dtype and shape 8", SL_FORMAT},
    {"hole at the start", "json={\"a\":" F32_1(4, 8) "} zero=8",
     "data_offsets begin at 4: a hole before it", SL_FORMAT},
    {"hole between", "json={\"a\":" F32_1(0, 4) ",\"b\":" F32_1(8, 12) "} zero=12",
     "tensor b: data_offsets begin at 8: a hole", SL_FORMAT},
    {"overlap", "json={\"a\":" F32_1(0, 4) ",\"b\":" F32_1(2, 6) "} zero=6",
     "tensor b: data_offsets begin at 2: it overlaps", SL_FORMAT},
    {"same bytes twice", "json={\"a\":" F32_1(0, 4) ",\"b\":" F32_1(0, 4) "} zero=4",
     "it overlaps the one before", SL_FORMAT},
    {"bytes at the end", "json={\"a\":" F32_1(0, 4) "} zero=5", "1 bytes after the last tensor",
     SL_FORMAT},
    {"no tensor but data", "json={} zero=1", "byte 10: 1 bytes after the last tensor", SL_FORMAT},
    {"tensor twice", "json={\"a\":" F32_1(0, 4) ",\"a\":" F32_1(4, 8) "} zero=8",
     "tensor a is there twice", SL_FORMAT},
    {"the same name escaped", "json={\"a\":" F32_1(0, 4) ",\"\\u0061\":" F32_1(4, 8) "} zero=8",
     "tensor a is there twice", SL_FORMAT},
    {"metadata twice", "json={\"__metadata__\":{},\"__metadata__\":{}}",
     "__metadata__ is there twice", SL_FORMAT},
    {"metadata an array", "json={\"__metadata__\":[]}", "'[' where '{' should be", SL_FORMAT},
    {"word cut", "json={\"a\":tru}", "'t' where a value", SL_FORMAT},
};

TEST(io_safetensors_refuses_every_kind_of_bad_file)
{
    cases_refused("test.safetensors", bad, BASE_COUNT_OF(bad));
    assert_true(BASE_COUNT_OF(bad) >= 35);
}

static const char *const good[] = {
    "json={}",
    "json={}~~~~~~",
    "json={\"a\":" F32_1(0, 4) "} zero=4",
    "json={\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"},\"b\":{\"data_offsets\":[4,7],\"shape\":"
    "[3,1],\"dtype\":\"F8_E4M3\"},"
    "~\"a\":~" F32_1(0, 4) "} zero=7",
    "json={\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"e\":{\"dtype\":\"BF16\","
    "\"shape\":[0,7],"
    "\"data_offsets\":[8,8]},\"\\u00e4\\ud83d\\ude00\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,2],"
    "\"data_offsets\":[8,10]}} zero=10",
    "json={\"h\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[0,4]}} hex=01000200",
};

TEST(io_safetensors_cut_anywhere_is_refused)
{
    cases_cut("test.safetensors", good, BASE_COUNT_OF(good));
}

TEST(io_safetensors_any_wrong_byte_is_clean)
{
    cases_flipped("test.safetensors", good, BASE_COUNT_OF(good));
}

TEST(io_safetensors_gives_tensors_in_file_order)
{
    sl_err err;
    io_model *m = NULL;
    uint8_t *copy;
    struct make *f = make_file(good[3]);
    ASSERT_OK(make_open_as("test.safetensors", f->p, f->n, &m, &copy, &err));
    assert_true(io_model_kind(m) == IO_HF && io_n_tensor(m) == 2);
    assert_string_equal(io_tensor(m, 0)->name, "a");
    const struct tensor *t = io_find(m, "b");
    assert_true(t == io_tensor(m, 1) && t->type == TENSOR_F8_E4M3 && t->n_dim == 2);
    assert_true(t->shape[0] == 3 && t->shape[1] == 1 && t->n_bytes == 3);
    assert_ptr_equal(t->data, copy + f->n - 3);
    assert_null(io_find(m, "__metadata__"));
    assert_null(io_config(m));
    io_close(m);
    free(copy);
    free(f);
    f = make_file(good[4]);
    ASSERT_OK(make_open_as("test.safetensors", f->p, f->n, &m, &copy, &err));
    assert_true(tensor_count(io_find(m, "s")) == 1 && tensor_count(io_find(m, "e")) == 0);
    assert_non_null(io_find(m, "\xc3\xa4\xf0\x9f\x98\x80"));
    struct weight w;
    ASSERT_STATUS(io_weight(m, "s", &w, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "I64 is no type of weights"));
    io_close(m);
    free(copy);
    free(f);
}

TEST(io_safetensors_survives_every_failing_allocation)
{
    cases_no_memory("test.safetensors", good, BASE_COUNT_OF(good));
}

/* What nothing needs may be of any kind; it is known by name, and why it is not read. */
TEST(io_safetensors_leaves_out_what_it_can_not_read)
{
    static const struct {
        const char *name, *why;
    } out[] = {{"d", "dtype \"Q4_0\""}, {"c", "a shape of 7 dimensions"}, {"b", "dtype \"F4\""}};
    sl_err err = {0};
    io_model *m = NULL;
    uint8_t *copy;
    struct make *f = make_file("json={\"__metadata__\":{\"n\":1,\"o\":{\"x\":[null]}},\"a\":" F32_1(
        0, 4) ","
              "\"b\":{\"shape\":[2],\"dtype\":\"F4\",\"data_offsets\":[4,5]},"
              "\"c\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[5,9]},"
              "\"d\":{\"dtype\":\"Q4_0\",\"shape\":[32],\"data_offsets\":[9,27]}} zero=27");
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    assert_int_equal(io_n_tensor(m), 1);
    assert_non_null(io_find(m, "a"));
    for (int i = 0; i < BASE_COUNT_OF(out); i++) {
        assert_null(io_find(m, out[i].name));
        assert_string_equal(io_unread_name(m, i), out[i].name);
        ASSERT_STATUS(io_missing(m, out[i].name, &err), SL_UNSUPPORTED);
        if (!strstr(err.text, out[i].why)) fail_msg("%s: %s", out[i].name, err.text);
    }
    assert_null(io_unread_name(m, 3));
    io_close(m);
    free(copy);
    free(f);
}
