/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants and which forms a core gets: every core that was measured, one of each kind that
 * was not, and the borders between ranges of models. */
#include <string.h>

#include "kern/kern.h"
#include "test.h"

static const struct {
    uint32_t family_model;
    const char *core;
    int two_tiles, prefetch_1, prefetch_n, prefetch_from, prefetch_far_1, prefetch_far;
} cores[] = {
    {0x1901, "zen3", 1, 2048, 2048, 2, 0, 0},  /* Milan */
    {0x1921, "zen3", 1, 2048, 2048, 2, 0, 0},  /* Vermeer */
    {0x190f, "zen3", 1, 2048, 2048, 2, 0, 0},  /* the last before Genoa's range */
    {0x1910, "zen4", 0, 0, 3072, 3, 0, 12288}, /* Storm Peak, Genoa: 0x10 to 0x1f */
    {0x1911, "zen4", 0, 0, 3072, 3, 0, 12288},
    {0x191f, "zen4", 0, 0, 3072, 3, 0, 12288},
    {0x1920, "zen3", 1, 2048, 2048, 2, 0, 0},
    {0x195f, "zen3", 1, 2048, 2048, 2, 0, 0},
    {0x1960, "zen4", 0, 0, 3072, 3, 0, 12288}, /* Raphael and after */
    {0x19a0, "zen4", 0, 0, 3072, 3, 0, 12288},
    {0x1a02, "zen5", 1, 8192, 8192, 2, 0, 0}, /* Turin */
    {0x1a44, "zen5", 1, 8192, 8192, 2, 0, 0},
    {0x1b00, "other", 1, 1024, 2048, 2, 0, 0},       /* an AMD core to come */
    {0x1731, "other", 1, 1024, 2048, 2, 0, 0},       /* Zen 2 */
    {0x068f, "intel", 1, 1024, 1536, 2, 4096, 4096}, /* Sapphire Rapids */
    {0x0000, "other", 1, 1024, 2048, 2, 0, 0},       /* AArch64, and where nothing is known */
};

TEST(kern_tune_of_cores)
{
    for (int i = 0; i < BASE_COUNT_OF(cores); i++) {
        const struct kern_tune *t = kern_tune_for(cores[i].family_model);
        assert_string_equal(t->core, cores[i].core);
        assert_int_equal(t->two_tiles, cores[i].two_tiles);
        assert_int_equal(t->prefetch_1, cores[i].prefetch_1);
        assert_int_equal(t->prefetch_n, cores[i].prefetch_n);
        assert_int_equal(t->prefetch_from, cores[i].prefetch_from);
        assert_int_equal(t->prefetch_far_1, cores[i].prefetch_far_1);
        assert_int_equal(t->prefetch_far, cores[i].prefetch_far);
    }
}

TEST(kern_select_takes_the_core_s_constants)
{
    struct kern k;
    uint32_t mask = cpu_isa_native();
    for (int i = 0; i < BASE_COUNT_OF(cores); i++) {
        kern_select_for(&k, mask, cores[i].family_model);
        assert_int_equal(k.two_tiles, cores[i].two_tiles);
        assert_int_equal(k.prefetch_n, cores[i].prefetch_n);
        assert_int_equal(k.prefetch_far_1, cores[i].prefetch_far_1);
        assert_int_equal(k.prefetch_far, cores[i].prefetch_far);
        if (cpu_has(mask, CPU_ISA_avx512vnni))
            assert_int_equal(k.short_rec, cores[i].two_tiles ? 6 : MM_FEW);
        else
            assert_int_equal(k.short_rec, 0);
    }
}

TEST(kern_select_forms_of_attention)
{
    struct kern k;
    kern_select_for(&k, 1u << CPU_ISA_ref, 0);
    assert_false(k.bf16_pairs || k.attn_bf16 || k.attn_i16 || k.short_rec);
#if defined(__x86_64__)
    uint32_t native = cpu_isa_native();
    kern_select_for(&k, native & cpu_isa_cap("avx2"), 0);
    assert_int_equal(k.attn_i16, cpu_has(native, CPU_ISA_avx2));
    assert_false(k.attn_bf16 || k.short_rec);
    kern_select_for(&k, native, 0);
    if (cpu_has(native, CPU_ISA_avx512)) assert_false(k.attn_i16);
    assert_int_equal(k.attn_bf16 != 0, cpu_has(native, CPU_ISA_avx512bf16));
    assert_int_equal(k.bf16_pairs != 0, cpu_has(native, CPU_ISA_avx512bf16));
#endif
}
