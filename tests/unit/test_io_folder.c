/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, shards, split files, quantised folders. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io_make.h"
#include "os/os.h"
#include "test.h"

#define F32_1(b, e) "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #b "," #e "]}"
#define ONE(name, value) "json={\"" name "\":" F32_1(0, 4) "} f32=" value
#define INDEX "model.safetensors.index.json"

static char dir[64];

/* A fresh folder; what an earlier test left is removed. */
static void fresh(void)
{
    sl_err err;
    char **names, path[300];
    int n;
    if (!dir[0]) {
        strcpy(dir, "/tmp/sluice-test-io-XXXXXX");
        if (!mkdtemp(dir)) abort();
        return;
    }
    ASSERT_OK(os_list(dir, &names, &n, &err));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(remove(path), 0);
    }
    os_list_free(names, n);
}

__attribute__((destructor)) static void remove_dir(void)
{
    if (!dir[0]) return;
    fresh();
    if (rmdir(dir) != 0) fprintf(stderr, "%s was left behind\n", dir);
}

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *words)
{
    sl_err err;
    struct make *f = make_file(words);
    ASSERT_OK(os_write_file(path_of(name), f->p, f->n, &err));
    free(f);
}

static void put_text(const char *name, const char *text)
{
    sl_err err;
    ASSERT_OK(os_write_file(path_of(name), text, strlen(text), &err));
}

/* Open the folder; the result must be of this status with this text in its message. */
static void expect(sl_status status, const char *text)
{
    sl_err err = {0};
    io_model *m = NULL;
    int64_t before = mem_used(MEM_MISC);
    sl_status st = io_open(dir, false, &m, &err);
    if (st != status || !strstr(err.text, text))
        fail_msg("%d %s (want %d %s)", st, err.text, status, text);
    io_close(m);
    assert_int_equal(mem_used(MEM_MISC), before);
}

TEST(io_folder_with_one_file)
{
    sl_err err;
    io_model *m;
    uint64_t n;
    fresh();
    put_text("config.json", "{\"model_type\":\"x\"}");
    put_text("tokenizer.json", "{}");
    put("model.safetensors", ONE("a", "3"));
    ASSERT_OK(io_open(dir, false, &m, &err));
    assert_true(io_n_tensor(m) == 1 && io_find(m, "a") && io_config(m) && !io_generation_config(m));
    assert_string_equal(text_json_get(io_config(m), "model_type")->s, "x");
    const char *p = io_text_file(m, "tokenizer.json", &n);
    assert_true(n == 2 && memcmp(p, "{}", 2) == 0);
    assert_null(io_text_file(m, "merges.txt", &n));
    assert_null(io_text_file(m, "../config.json", &n));
    const struct tensor *ta = io_find(m, "a");
    io_drop(m, ta->data, ta->n_bytes);
    float v;
    tensor_dequant(TENSOR_F32, io_find(m, "a")->data, 1, &v); /* read again from the file */
    assert_true(v == 3.0f);
    io_close(m);
}

TEST(io_folder_for_the_vocabulary_needs_no_weights)
{
    sl_err err;
    io_model *m;
    uint64_t n;
    fresh();
    put_text("tokenizer.json", "{\"a\":1}");
    put_text("tokenizer_config.json", "{}");
    expect(SL_NOTFOUND, "no weights: neither .safetensors nor .gguf");
    ASSERT_OK(io_open(dir, true, &m, &err));
    assert_true(io_n_tensor(m) == 0 && !io_find(m, "a") && io_text_file(m, "tokenizer.json", &n));
    assert_null(io_config(m));
    struct weight w;
    ASSERT_STATUS(io_weight(m, "a", &w, &err), SL_NOTFOUND);
    io_close(m);
}

TEST(io_folder_with_shards)
{
    sl_err err;
    io_model *m;
    fresh();
    put_text(INDEX, "{\"metadata\":{\"total_size\":[1,{\"a\":[]},-2.5e3]},\"weight_map\":{\"b\":"
                    "\"y.safetensors\",\"a\":"
                    "\"x.safetensors\"}}");
    put("x.safetensors", "json={\"a\":" F32_1(0, 4) ",\"extra\":" F32_1(4, 8) "} zero=8");
    put("y.safetensors", ONE("b", "2"));
    ASSERT_OK(io_open(dir, false, &m, &err));
    assert_true(io_n_tensor(m) == 2 && io_n_file(m) == 2 && io_find(m, "a") && io_find(m, "b"));
    assert_null(io_find(m, "extra")); /* the index does not give it to anybody */
    assert_non_null(strstr(io_file_path(m, io_find(m, "a")->file), "x.safetensors"));
    assert_true(io_file_size(m, io_find(m, "b")->file) > 8);
    io_close(m);
}

TEST(io_folder_links_to_files_work_as_in_the_hubs_cache)
{
    sl_err err;
    io_model *m;
    fresh();
    put("blob", ONE("a", "1"));
    assert_int_equal(symlink("blob", path_of("model.safetensors")), 0);
    ASSERT_OK(io_open(dir, false, &m, &err));
    assert_non_null(io_find(m, "a"));
    io_close(m);
    assert_int_equal(unlink(path_of("model.safetensors")), 0);
    assert_int_equal(symlink("/dev/zero", path_of("model.safetensors")), 0);
    expect(SL_FORMAT, "is a character device");
}

TEST(io_folder_refuses_bad_indexes)
{
    static const struct {
        const char *index, *text;
        sl_status status;
    } t[] = {
        {"", "the JSON ends where '{'", SL_FORMAT},
        {"[]", "'[' where '{'", SL_FORMAT},
        {"{}", "no weight_map", SL_FORMAT},
        {"{\"weight_map\":{}}", "no weight_map", SL_FORMAT},
        {"{\"weight_map\":[]}", "'[' where '{'", SL_FORMAT},
        {"{\"weight_map\":{\"a\":1}}", "'1' where a string", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}", "the JSON ends where ','", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}}}", "bytes after the end", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"},\"weight_map\":{}}",
         "weight_map is there twice", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}",
         "tensor a is there twice", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}",
         "\"../x.safetensors\" is not a name inside", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", "is not a name inside", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"sub/x.safetensors\"}}", "is not a name inside", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"..\"}}", "is not a name inside", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}", "file \"\" is empty", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.safetensors\\u0000\"}}", "has a control character", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"x.bin\"}}", "\"x.bin\" is not a .safetensors file", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"pytorch_model.pt\"}}", "is not a .safetensors file", SL_FORMAT},
        {"{\"weight_map\":{\"a\":\"none.safetensors\"}}", "none.safetensors: No such file",
         SL_NOTFOUND},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}",
         "y.safetensors: byte 8", SL_FORMAT},
    };
    fresh();
    put("x.safetensors", ONE("a", "1"));
    put("y.safetensors", "u64=2 raw=[]");
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        put_text(INDEX, t[i].index);
        expect(t[i].status, t[i].text);
    }
}

TEST(io_folder_says_what_is_missing_or_unsafe)
{
    fresh();
    put_text("pytorch_model.bin", "x");
    expect(SL_UNSUPPORTED, "pytorch_model.bin is not read, since such files can run code");
    put_text("m.gguf", "x");
    expect(SL_NOTFOUND, "give the path of m.gguf itself");
    put("model-00001-of-00002.safetensors", ONE("a", "1"));
    expect(SL_OK, ""); /* the only one there is */
    put("model-00002-of-00002.safetensors", ONE("b", "1"));
    expect(SL_NOTFOUND, "2 .safetensors files but no " INDEX);
    put_text("config.json", "[1]");
    expect(SL_FORMAT, "config.json: byte 0: not a JSON object");
    put_text("config.json", "{\"a\":1,}");
    expect(SL_FORMAT, "config.json");
    assert_int_equal(unlink(path_of("config.json")), 0);
    assert_int_equal(mkfifo(path_of("config.json"), 0600), 0);
    expect(SL_FORMAT, "config.json: is a pipe");
}

/* ---- fp8 and the quantisers that are not read ---- */
#define FP8_CONFIG                                                                                 \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":["  \
    "2,3]}}"

TEST(io_weight_reads_fp8_with_block_scales)
{
    sl_err err;
    io_model *m;
    struct weight w;
    float row[4];
    fresh();
    put_text("config.json", FP8_CONFIG);
    /* 3 x 4 in blocks of 2 x 3: scales [2, 2]; the odd byte in front makes the second set of scales
     * unaligned */
    put("model.safetensors", "json={\"o\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                             "\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,4],"
                             "\"data_offsets\":[1,13]},\"a.weight_scale_inv\":{\"dtype\":\"F32\","
                             "\"shape\":[2,2],\"data_offsets\":[13,29]},"
                             "\"b.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,4],\"data_offsets\":"
                             "[29,33]},\"b.weight_scale_inv\":{\"dtype\":\"BF16\","
                             "\"shape\":[1,2],\"data_offsets\":[33,37]},\"n.weight\":{\"dtype\":"
                             "\"BF16\",\"shape\":[2],\"data_offsets\":[37,41]}} "
                             "u8=0 hex=383838384040404030303030 f32=1 f32=2 f32=3 f32=4 "
                             "hex=38383838 hex=003f0040 hex=803f0040");
    ASSERT_OK(io_open(dir, false, &m, &err));
    ASSERT_OK(io_weight(m, "a.weight", &w, &err));
    assert_true(w.scheme == TENSOR_SCHEME_F8_BLOCK && w.block_rows == 2 && w.block_cols == 3 &&
                w.rows == 3);
    assert_int_equal((uintptr_t)w.scale % 4, 0);
    weight_dequant(&w, 1, 0, 4, row);
    assert_true(row[0] == 2 && row[2] == 2 && row[3] == 4);
    weight_dequant(&w, 2, 2, 2, row);
    assert_true(row[0] == 1.5f && row[1] == 2);
    ASSERT_OK(io_weight(m, "b.weight", &w, &err));
    weight_dequant(&w, 0, 0, 4, row);
    assert_true(row[0] == 0.5f && row[3] == 2);
    ASSERT_OK(io_weight(m, "n.weight", &w, &err));
    assert_true(w.scheme == TENSOR_SCHEME_PLAIN && w.rows == 1 && w.cols == 2);
    io_close(m);
}

TEST(io_weight_refuses_fp8_with_wrong_scales)
{
    static const struct {
        const char *scale, *text;
    } t[] = {
        {"", "its scales a.weight_scale_inv are missing"},
        {",\"a.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[12,20]}",
         "is not [2, 2] as 3 x 4"},
        {",\"a.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}",
         "is not [2, 2]"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char words[500];
        sl_err err;
        io_model *m;
        struct weight w;
        fresh();
        put_text("config.json", FP8_CONFIG);
        snprintf(words, sizeof words,
                 "json={\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,4],\"data_offsets\":[0,12]"
                 "}%s} zero=%d",
                 t[i].scale, i ? 20 : 12);
        put("model.safetensors", words);
        ASSERT_OK(io_open(dir, false, &m, &err));
        ASSERT_STATUS(io_weight(m, "a.weight", &w, &err), SL_FORMAT);
        if (!strstr(err.text, t[i].text)) fail_msg("%s (want %s)", err.text, t[i].text);
        io_close(m);
    }
    put("model.safetensors",
        "json={\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"a_scale_inv\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[1,5]}} zero=5");
    expect(SL_FORMAT, "a_scale_inv is I32, scales are F32, F16, BF16 or F8_E8M0 (U8)");
}

TEST(io_weight_refuses_other_quantisers_by_name_but_opens_them)
{
    static const struct {
        const char *file, *config, *text;
    } t[] = {
        {"config.json", "{\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"}}",
         "version \"gemv\" of 4 bits is not read (gemm"},
        {"config.json", "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":3}}",
         "of 3 bits"},
        {"config.json", "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":2}}",
         "GPTQ of 2 bits is not read (4 and 8 are)"},
        {"config.json",
         "{\"quantization_config\":{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}}",
         "checkpoint_format \"marlin\""},
        {"config.json",
         "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-"
         "24\","
         "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"]}}}}",
         "compressed-tensors format \"marlin-24\" is not read (pack-"},
        {"config.json",
         "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-"
         "quantized\","
         "\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":3}}}}}",
         "g: weights of type int with 3 bits are not read"},
        {"config.json", "{\"quantization_config\":{\"quant_method\":\"new one\"}}",
         "quant_method \"new one\" are not read (fp8, mxfp8"},
        {"config.json", "{\"quantization_config\":{}}", "quant_method \"\" are not read"},
        {"config.json", "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}",
         "fmt is \"e5m2\""},
        {"hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"W4A8_AWQ\"}}",
         "hf_quant_config.json: quant_algo is \"W4A8_AWQ\"; NVFP4, FP8"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        sl_err err;
        io_model *m;
        struct weight w;
        fresh();
        put_text(t[i].file, t[i].config);
        put("model.safetensors", ONE("a", "1"));
        ASSERT_OK(io_open(dir, false, &m, &err));
        assert_non_null(io_find(m, "a"));
        ASSERT_STATUS(io_weight(m, "a", &w, &err), SL_UNSUPPORTED);
        if (!strstr(err.text, t[i].text)) fail_msg("%s (want %s)", err.text, t[i].text);
        io_close(m);
    }
    put_text("config.json", "{\"quantization_config\":[]}");
    expect(SL_FORMAT, "quantization_config is not an object");
    put_text("config.json",
             "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}}");
    expect(SL_FORMAT, "weight_block_size[0] is not a number in 1 .. 65536");
    put_text("config.json", "{\"quantization_config\":{\"quant_method\":7}}");
    expect(SL_FORMAT, "quant_method");
}

/* ---- split GGUF ---- */
#define PART(no, count, total, tensors)                                                            \
    "GGUF u32=3 u64=" tensors " u64=3 s=split.no u32=2 u16=" no " s=split.count u32=2 u16=" count  \
    " s=split.tensors.count u32=5 u32=" total " "
#define W(name) "s=" name " u32=1 u64=8 u32=0 u64=0 pad=32 zero=32"

static void put_parts(void)
{
    fresh();
    put("m-00001-of-00003.gguf", PART("0", "3", "2", "0"));
    put("m-00002-of-00003.gguf", PART("1", "3", "2", "1") W("a"));
    put("m-00003-of-00003.gguf", PART("2", "3", "2", "1") W("b"));
}

static void expect_split(const char *name, bool vocab_only, sl_status status, const char *text)
{
    sl_err err = {0};
    io_model *m = NULL;
    int64_t before = mem_used(MEM_MISC);
    sl_status st = io_open(path_of(name), vocab_only, &m, &err);
    if (st != status || (st != SL_OK && !strstr(err.text, text)))
        fail_msg("%s: %d %s (want %d %s)", name, st, err.text, status, text);
    io_close(m);
    assert_int_equal(mem_used(MEM_MISC), before);
}

TEST(io_split_opens_from_any_part)
{
    put_parts();
    for (int i = 1; i <= 3; i++) {
        char name[40];
        sl_err err;
        io_model *m;
        snprintf(name, sizeof name, "m-0000%d-of-00003.gguf", i);
        ASSERT_OK(io_open(path_of(name), false, &m, &err));
        assert_true(io_n_file(m) == 3 && io_n_tensor(m) == 2 && io_find(m, "a")->file == 1 &&
                    io_find(m, "b")->file == 2);
        uint64_t no = 9;
        ASSERT_OK(io_meta_u64(m, "split.no", &no, &err));
        assert_int_equal(no, 0);
        io_close(m);
    }
}

TEST(io_split_refuses_parts_that_do_not_belong_together)
{
    const char *first = "m-00001-of-00003.gguf";
    put_parts();
    assert_int_equal(unlink(path_of("m-00003-of-00003.gguf")), 0);
    expect_split(first, false, SL_NOTFOUND, "m-00003-of-00003.gguf: No such file");
    expect_split(first, true, SL_OK, "");
    put("m-00003-of-00003.gguf", PART("1", "3", "2", "1") W("b"));
    expect_split(first, false, SL_FORMAT, "split.no is 1, by its name it is part 2");
    put("m-00003-of-00003.gguf", PART("2", "4", "2", "1") W("b"));
    expect_split(first, false, SL_FORMAT, "split.count is 4, not 3");
    put("m-00003-of-00003.gguf", "GGUF u32=3 u64=1 u64=0 " W("b"));
    expect_split(first, false, SL_NOTFOUND, "split.no is missing");
    put("m-00003-of-00003.gguf", PART("2", "3", "2", "1") W("a"));
    expect_split(first, false, SL_FORMAT, "tensor a is there twice");
    put("m-00003-of-00003.gguf", PART("2", "3", "2", "0"));
    expect_split(first, false, SL_FORMAT, "split.tensors.count is 2, the parts have 1");
    put("m-00003-of-00003.gguf", "json={}");
    expect_split(first, false, SL_FORMAT, "m-00003-of-00003.gguf: byte 0: not a GGUF file");
    put("other.gguf", PART("0", "3", "2", "0"));
    expect_split("other.gguf", false, SL_FORMAT, "must be named like x-00001-of-00003.gguf");
    put("m-00001-of-00002.gguf", PART("0", "3", "2", "0"));
    expect_split("m-00001-of-00002.gguf", false, SL_FORMAT, "one of 3 parts, which must be named");
    put("alone.gguf", "GGUF u32=3 u64=1 u64=1 s=split.count u32=2 u16=1 " W("a"));
    expect_split("alone.gguf", false, SL_OK, "");
}

TEST(io_folder_survives_every_failing_allocation)
{
    fresh();
    put_text("config.json", FP8_CONFIG);
    put_text("tokenizer.json", "{}");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"x.safetensors\",\"a_scale_inv\":\"x.safetensors\"}}");
    put("x.safetensors", "json={\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1],\"data_offsets\":[0,1]"
                         "},\"a_scale_inv\":{\"dtype\":"
                         "\"BF16\",\"shape\":[1,1],\"data_offsets\":[1,3]}} zero=3");
    sl_status st = SL_NOMEM;
    for (uint64_t k = 1; st == SL_NOMEM; k++) {
        sl_err err;
        io_model *m = NULL;
        int64_t before = mem_used(MEM_MISC);
        mem_fail_at(k, 0);
        st = io_open(dir, false, &m, &err);
        mem_fail_at(0, 0);
        if (st != SL_OK && st != SL_NOMEM) fail_msg("allocation %d: %d %s", (int)k, st, err.text);
        io_close(m);
        assert_int_equal(mem_used(MEM_MISC), before);
        assert_true(k < 200);
    }
}
