/* SPDX-License-Identifier: Apache-2.0 */
/* Small floats, sizes, bounded reading, allocation, arenas, strings, random numbers, hashes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/fp.h"
#include "base/fp_math.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rd.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/str.h"
#include "test.h"

TEST(fp_f16_round_trips_every_code)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float f = fp_f16_to_f32((uint16_t)i);
        if (isnan(f))
            assert_true(isnan(fp_f16_to_f32(fp_f32_to_f16(f))));
        else
            assert_int_equal(fp_f32_to_f16(f), i);
    }
}

TEST(fp_f16_rounds_to_nearest_even)
{
    static const struct {
        float in;
        uint16_t out;
    } t[] = {{1.0f + 0x1p-11f, 0x3c00},
             {1.0f + 0x3p-11f, 0x3c02},
             {0x1p-25f, 0},
             {0x1.8p-25f, 1},
             {65504.0f, 0x7bff},
             {65519.9f, 0x7bff},
             {65520.0f, 0x7c00},
             {1e9f, 0x7c00},
             {-0.0f, 0x8000}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        assert_int_equal(fp_f32_to_f16(t[i].in), t[i].out);
}

TEST(fp_bf16_rounds_to_nearest_even_and_keeps_nan)
{
    assert_int_equal(fp_f32_to_bf16(fp_from_bits(0x3f808000)), 0x3f80);
    assert_int_equal(fp_f32_to_bf16(fp_from_bits(0x3f818000)), 0x3f82);
    assert_true(isnan(fp_bf16_to_f32(fp_f32_to_bf16(fp_from_bits(0x7f800001)))));
}

TEST(fp_e4m3_round_trips_every_code)
{
    for (uint32_t i = 0; i < 256; i++) {
        float f = fp_e4m3_to_f32((uint8_t)i);
        if (isnan(f))
            assert_int_equal(fp_f32_to_e4m3(f) & 0x7f, 0x7f);
        else
            assert_int_equal(fp_f32_to_e4m3(f), i);
    }
    assert_true(fp_e4m3_to_f32(0x7e) == 448.0f);
    assert_int_equal(fp_f32_to_e4m3(1000.0f), 0x7e);
    assert_true(fp_e4m3_to_f32(1) == 0x1p-9f);
}

TEST(fp_e8m0_and_ue4m3_edges)
{
    assert_true(fp_e8m0_to_f32(127) == 1.0f);
    assert_true(fp_e8m0_to_f32(0) == 0x1p-127f);
    assert_true(isnan(fp_e8m0_to_f32(255)));
    assert_true(fp_ue4m3_to_f32(0) == 0.0f && fp_ue4m3_to_f32(0x7f) == 0.0f);
}

TEST(size_refuses_overflow)
{
    uint64_t r = 7;
    assert_false(size_mul(1ull << 33, 1ull << 31, &r));
    assert_false(size_add(UINT64_MAX, 1, &r));
    assert_false(size_align(UINT64_MAX - 3, 64, &r));
    assert_int_equal(r, 7);
    assert_true(size_align(65, 64, &r));
    assert_int_equal(r, 128);
}

TEST(rd_sticks_after_the_end)
{
    const uint8_t b[] = {1, 2, 3, 4, 5};
    struct rd r = rd_init(b, sizeof b);
    assert_int_equal(rd_u32(&r), 0x04030201);
    assert_int_equal(rd_u16(&r), 0);
    assert_false(rd_ok(&r));
    assert_int_equal(rd_u8(&r), 0);
    r = rd_init(b, sizeof b);
    assert_null(rd_bytes(&r, UINT64_MAX));
}

TEST(mem_counts_and_fails_on_request)
{
    sl_err err;
    void *p = NULL;
    int64_t before = mem_used(MEM_MISC);
    ASSERT_OK(mem_alloc(MEM_MISC, 100, &p, &err));
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(mem_used(MEM_MISC) - before, 100);
    mem_free(p);
    assert_int_equal(mem_used(MEM_MISC), before);
    mem_fail_at(1, 0);
    ASSERT_STATUS(mem_alloc(MEM_MISC, 100, &p, &err), SL_NOMEM);
    assert_non_null(strstr(err.text, "100 bytes"));
    ASSERT_STATUS(mem_alloc_array(MEM_MISC, SIZE_MAX / 2, 4, &p, &err), SL_NOMEM);
}

TEST(mem_arena_gives_zeroed_pieces_and_keeps_its_limit)
{
    sl_err err;
    struct arena a;
    void *p = NULL, *q = NULL;
    mem_arena_init(&a, MEM_MISC, 100000);
    ASSERT_OK(mem_arena_alloc(&a, 10, &p, &err));
    ASSERT_OK(mem_arena_alloc(&a, 50000, &q, &err));
    for (int i = 0; i < 50000; i++)
        assert_int_equal(((char *)q)[i], 0);
    memset(q, 1, 50000);
    memset(p, 2, 10);
    assert_int_equal(((char *)q)[0], 1);
    ASSERT_STATUS(mem_arena_alloc(&a, 60000, &q, &err), SL_NOMEM);
    int64_t used = mem_used(MEM_MISC);
    assert_true(used > 0);
    mem_arena_fini(&a);
    assert_int_equal(mem_used(MEM_MISC), 0);
}

TEST(mem_arena_reset_keeps_a_single_block)
{
    sl_err err;
    struct arena a;
    void *p = NULL, *q = NULL;
    mem_arena_init(&a, MEM_MISC, 100000);
    ASSERT_OK(mem_arena_alloc(&a, 100, &p, &err));
    memset(p, 7, 100);
    uint64_t n = mem_n_alloc();
    mem_arena_reset(&a);
    ASSERT_OK(mem_arena_alloc(&a, 100, &q, &err));
    assert_ptr_equal(p, q);
    assert_int_equal(mem_n_alloc(), n);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)q)[i], 0);
    for (int i = 0; i < 9; i++)
        ASSERT_OK(mem_arena_alloc(&a, 10000, &q, &err)); /* a second block */
    mem_arena_reset(&a);
    assert_int_equal(mem_used(MEM_MISC), 0);
    ASSERT_OK(mem_arena_alloc(&a, 99000, &q, &err)); /* the limit counts from the reset */
    mem_arena_fini(&a);
}

TEST(str_appends_and_says_when_it_could_not)
{
    struct str s;
    sl_err err;
    str_init(&s, MEM_MISC, 10);
    str_puts(&s, "abc");
    str_printf(&s, "%d", 42);
    assert_string_equal(str_c(&s), "abc42");
    str_puts(&s, "too long");
    assert_string_equal(str_c(&s), "abc42");
    ASSERT_STATUS(str_status(&s, &err), SL_LIMIT);
    str_fini(&s);
}

TEST(str_distance_is_levenshtein)
{
    assert_int_equal(str_distance("threads", "thread"), 1);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("", "abc"), 3);
}

/* Units of the last place between two results. */
static double ulps(double a, double b)
{
    int e;
    frexp(b, &e);
    return fabs(a - b) / ldexp(1, e - 53);
}

TEST(fp_log_and_exp_are_near_libm_and_the_same_bits_everywhere)
{
    uint64_t rng = 4, h = 0;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        double u = (double)((rng_next(&rng) >> 32) + 0.5) * 0x1p-32, v[4];
        v[0] = fp_log(u);
        v[1] = fp_log(-v[0]);
        v[2] = fp_exp(-700 * u);
        v[3] = fp_exp(v[0]);
        worst = fmax(worst, ulps(v[0], log(u)));
        worst = fmax(worst, fabs(v[1]) > 1e-3 ? ulps(v[1], log(-v[0])) : 0);
        worst = fmax(worst, ulps(v[2], exp(-700 * u)));
        h = hash_bytes(v, sizeof v, h);
    }
    if (worst > 3) fail_msg("%g units of the last place", worst);
    assert_true(fp_log(1) == 0 && fp_exp(0) == 1 && fp_exp(-709) == 0 && fp_exp(-INFINITY) == 0);
    assert_int_equal(h, 0xb6d66cfb5a76d9a1u);
}

TEST(rng_philox_matches_the_published_vectors)
{
    uint32_t r[4]; /* Random123's known-answer tests for philox4x32-10 */
    rng_philox(0, 0, 0, r);
    assert_int_equal(r[0], 0x6627e8d5);
    assert_int_equal(r[1], 0xe169c58d);
    assert_int_equal(r[2], 0xbc57ac4c);
    assert_int_equal(r[3], 0x9b00dbd8);
    rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, r);
    assert_int_equal(r[0], 0x408f276d);
    assert_int_equal(r[1], 0x41c83b0e);
    assert_int_equal(r[2], 0xa20bc7c6);
    assert_int_equal(r[3], 0x6d5451fd);
}

TEST(status_cleans_control_bytes_and_prefixes)
{
    sl_err err;
    assert_int_equal(SL_FAIL(&err, FORMAT, "a\nb %d", 7), SL_FORMAT);
    assert_string_equal(err.text, "a?b 7");
    status_prefix(&err, "file %s", "x");
    assert_string_equal(err.text, "file x: a?b 7");
    assert_int_equal(status_http(SL_BUSY), 429);
}

TEST(status_says_where_a_text_was_cut)
{
    char text[sizeof((sl_err *)0)->text + 1];
    sl_err err;
    memset(text, 'a', sizeof text);
    text[sizeof text - 2] = 0; /* what fits */
    assert_int_equal(SL_FAIL(&err, FORMAT, "%s", text), SL_FORMAT);
    assert_string_equal(err.text, text);
    status_prefix(&err, "b");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 6, "aa...");
    text[sizeof text - 2] = 'a';
    text[sizeof text - 1] = 0;
    memcpy(text + sizeof text - 7, "\xe2\x82\xac", 3); /* whose last byte is past the cut */
    assert_int_equal(SL_FAIL(&err, FORMAT, "%s", text), SL_FORMAT);
    assert_string_equal(err.text + sizeof err.text - 8, "aa...");
}

TEST(cpu_caps_are_cumulative)
{
    assert_int_equal(cpu_isa_cap("ref"), 1);
    assert_int_equal(cpu_isa_cap("avx2"), 3);
    assert_int_equal(cpu_isa_cap("nonsense"), 0);
    assert_true(cpu_has(cpu_isa_mask(), CPU_ISA_ref));
}

TEST(hash_is_xxh3)
{
    uint64_t wide[2];
    assert_true(hash_bytes("", 0, 0) == 0x2D06800538D394C2ull);
    hash_wide("", 0, wide);
    assert_true(wide[0] == 0x6001C324468D497Full && wide[1] == 0x99AA06D3014798D8ull);
}
