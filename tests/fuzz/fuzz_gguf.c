/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: io. Property: any bytes either open as GGUF, and then every tensor's bytes, every value
 * and every string can be read and every weight dequantised, or are refused with a text; nothing is
 * leaked. */
#include <math.h>
#include <string.h>

#include "fuzz_io.h"

static void read_meta(const io_model *m)
{
    for (int i = 0; i < io_n_meta(m); i++) {
        const char *key = io_meta_key(m, i), *s;
        char text[64];
        uint64_t u, n;
        double d;
        bool b;
        struct io_array a;
        sl_err err;
        io_meta_text(m, i, text, sizeof text);
        int n_ok =
            (io_meta_u64(m, key, &u, &err) == SL_OK) + (io_meta_bool(m, key, &b, &err) == SL_OK);
        n_ok += io_meta_f64(m, key, &d, &err) == SL_OK;
        if (io_meta_str(m, key, &s, &n, &err) == SL_OK) n_ok++, fuzz_touch(s, n);
        if (io_meta_array(m, key, &a, &err) == SL_OK) {
            n_ok++;
            for (uint64_t k = 0; k < a.n; k++) {
                int64_t v;
                s = io_array_str(&a, k, &n);
                if (s) fuzz_touch(s, n);
                if (io_array_i64(&a, k, &v) + io_array_f64(&a, k, &d) + (s != NULL) == 0 &&
                    a.type != IO_U64)
                    __builtin_trap();
            }
        }
        if (n_ok ==
            0) /* an i64 that is negative is the only kind that u64 refuses, and f64 takes it */
            __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) return 0;
    io_model *m = fuzz_open("fuzz.gguf", data, size);
    if (!m) return 0;
    read_meta(m);
    fuzz_tensors(m, data, size);
    io_close(m);
    return 0;
}
