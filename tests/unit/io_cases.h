/* SPDX-License-Identifier: Apache-2.0 */
/* What every reader of files must stand: tables of bad files, and good ones cut, flipped and opened
 * without memory. name is the file's name in messages. */
#ifndef IO_CASES_H
#define IO_CASES_H

#include "base/mem.h"
#include "io_make.h"
#include "test.h"

struct bad_file {
    const char *what, *file, *text;
    sl_status status;
};

static inline void cases_refused(const char *name, const struct bad_file *bad, int n)
{
    for (int i = 0; i < n; i++) {
        sl_err err = {0};
        io_model *m = NULL;
        uint8_t *copy;
        struct make *f = make_file(bad[i].file);
        int64_t before = mem_used(MEM_MISC);
        sl_status st = make_open_as(name, f->p, f->n, &m, &copy, &err);
        if (st != bad[i].status || !strstr(err.text, bad[i].text))
            fail_msg("%s: status %d, \"%s\" (want \"%s\")", bad[i].what, st, err.text, bad[i].text);
        assert_non_null(strstr(err.text, name));
        assert_int_equal(mem_used(MEM_MISC), before);
        free(copy);
        free(f);
    }
}

static inline void cases_cut(const char *name, const char *const *good, int n_good)
{
    int64_t before = mem_used(MEM_MISC);
    for (int i = 0; i < n_good; i++) {
        struct make *f = make_file(good[i]);
        for (size_t n = 0; n <= f->n; n++) {
            sl_err err = {0};
            io_model *m = NULL;
            uint8_t *copy;
            sl_status st = make_open_as(name, f->p, n, &m, &copy, &err);
            if ((st == SL_OK) != (n == f->n))
                fail_msg("file %d cut at %zu: %d %s", i, n, st, err.text);
            assert_true(st == SL_OK || err.text[0]);
            io_close(m);
            free(copy);
        }
        free(f);
    }
    assert_int_equal(mem_used(MEM_MISC), before);
}

static inline void cases_flipped(const char *name, const char *const *good, int n_good)
{
    for (int i = 0; i < n_good; i++) {
        struct make *f = make_file(good[i]);
        for (size_t at = 0; at < f->n * 3; at++) {
            static const uint8_t flip[3] = {0xff, 0x80, 0x01};
            sl_err err = {0};
            io_model *m = NULL;
            uint8_t *copy;
            f->p[at / 3] ^= flip[at % 3];
            sl_status st = make_open_as(name, f->p, f->n, &m, &copy, &err);
            f->p[at / 3] ^= flip[at % 3];
            assert_true(st == SL_OK || st == SL_FORMAT || st == SL_UNSUPPORTED);
            io_close(m);
            free(copy);
        }
        free(f);
    }
}

static inline void cases_no_memory(const char *name, const char *const *good, int n_good)
{
    for (int i = 0; i < n_good; i++) {
        struct make *f = make_file(good[i]);
        int64_t before = mem_used(MEM_MISC);
        sl_status st = SL_NOMEM;
        for (uint64_t k = 1; st == SL_NOMEM; k++) {
            sl_err err;
            io_model *m = NULL;
            uint8_t *copy;
            mem_fail_at(k, 0);
            st = make_open_as(name, f->p, f->n, &m, &copy, &err);
            mem_fail_at(0, 0);
            assert_true(st == SL_OK || (st == SL_NOMEM && k < 100));
            io_close(m);
            free(copy);
            assert_int_equal(mem_used(MEM_MISC), before);
        }
        assert_int_equal(st, SL_OK);
        free(f);
    }
}

#endif
