/* SPDX-License-Identifier: Apache-2.0 */
/* Files for tests, written down as a line of words:
 *   GGUF          the magic                    u8=7 u16=7 u32=7 u64=-1 f32=0.5 f64=nan
 * little-endian numbers s=text        u64 length, bytes            sn=N,text   the same with a
 * false length N hex=00ff      bytes                        pad=32      zeros up to a multiple of
 * 32 zero=128      zeros                        raw=text    bytes json=text     a safetensors
 * header: u64 length and the text, in which ~ stands for a space
 */
#ifndef IO_MAKE_H
#define IO_MAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

struct make {
    uint8_t p[65536];
    size_t n;
};

static inline void make_bytes(struct make *m, const void *p, size_t n)
{
    if (n > sizeof m->p - m->n) abort();
    if (n) memcpy(m->p + m->n, p, n);
    m->n += n;
}

static inline void make_uint(struct make *m, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)(v >> (8 * i));
        make_bytes(m, &b, 1);
    }
}

static inline void make_zero(struct make *m, size_t n)
{
    for (; n > 0; n--)
        make_bytes(m, "", 1);
}

static inline void make_text(struct make *m, const char *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        make_bytes(m, v[i] == '~' ? " " : v + i, 1);
}

/* One word; v is what follows '='. */
static inline void make_word(struct make *m, const char *w, size_t n)
{
    char word[4096];
    if (n >= sizeof word) abort();
    memcpy(word, w, n);
    word[n] = 0;
    char *v = strchr(word, '=');
    if (!v) {
        make_bytes(m, word, n);
        return;
    }
    *v++ = 0;
    uint64_t num = strtoull(v, NULL, 0);
    if (strcmp(word, "u8") == 0)
        make_uint(m, num, 1);
    else if (strcmp(word, "u16") == 0)
        make_uint(m, num, 2);
    else if (strcmp(word, "u32") == 0)
        make_uint(m, num, 4);
    else if (strcmp(word, "u64") == 0)
        make_uint(m, num, 8);
    else if (strcmp(word, "f32") == 0) {
        float f = strtof(v, NULL);
        make_bytes(m, &f, 4);
    } else if (strcmp(word, "f64") == 0) {
        double f = strtod(v, NULL);
        make_bytes(m, &f, 8);
    } else if (strcmp(word, "s") == 0) {
        make_uint(m, strlen(v), 8);
        make_text(m, v, strlen(v));
    } else if (strcmp(word, "sn") == 0) {
        make_uint(m, num, 8);
        v = strchr(v, ',') + 1;
        make_text(m, v, strlen(v));
    } else if (strcmp(word, "hex") == 0) {
        for (; v[0] && v[1]; v += 2) {
            char two[3] = {v[0], v[1], 0};
            make_uint(m, strtoull(two, NULL, 16), 1);
        }
    } else if (strcmp(word, "pad") == 0) {
        while (m->n % num)
            make_zero(m, 1);
    } else if (strcmp(word, "zero") == 0)
        make_zero(m, num);
    else if (strcmp(word, "raw") == 0)
        make_text(m, v, strlen(v));
    else if (strcmp(word, "json") == 0) {
        make_uint(m, strlen(v), 8);
        make_text(m, v, strlen(v));
    } else
        abort();
}

static inline struct make *make_file(const char *words)
{
    struct make *m = calloc(1, sizeof *m);
    if (!m) abort();
    while (*words) {
        size_t n = strcspn(words, " ");
        if (n) make_word(m, words, n);
        words += n + strspn(words + n, " ");
    }
    return m;
}

/* One more key, in make_file's words, of those of a GGUF file. */
static inline void make_key(struct make *kv, uint64_t *n_kv, const char *words)
{
    struct make *one = make_file(words);
    make_bytes(kv, one->p, one->n);
    free(one);
    ++*n_kv;
}

/* A GGUF file of these keys, which it frees, with an embedding of 300 tokens and 64 columns (I8).
 * Free it. */
static inline struct make *make_gguf(struct make *kv, uint64_t n_kv)
{
    struct make *f = make_file("GGUF u32=3 u64=1 u64=0");
    struct make *w = make_file("s=token_embd.weight u32=2 u64=64 u64=300 u32=24 u64=0");
    memcpy(f->p + 16, &n_kv, 8);
    make_bytes(f, kv->p, kv->n);
    make_bytes(f, w->p, w->n);
    while (f->n % 32)
        make_zero(f, 1);
    make_zero(f, 64 * 300);
    free(kv);
    free(w);
    return f;
}

/* Open a copy of exactly n bytes, so that a sanitizer sees a read past the end; *copy is to be
 * freed after io_close. */
static inline sl_status make_open_as(const char *name, const void *p, size_t n, io_model **out,
                                     uint8_t **copy, sl_err *err)
{
    *copy = malloc(n ? n : 1);
    if (!*copy) abort();
    if (n) memcpy(*copy, p, n);
    return io_open_bytes(name, *copy, n, out, err);
}

static inline sl_status make_open(const void *p, size_t n, io_model **out, uint8_t **copy,
                                  sl_err *err)
{
    return make_open_as("test.file", p, n, out, copy, err);
}

#endif
