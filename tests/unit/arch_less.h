/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny GGUF files, less a tensor or a key. */
#ifndef ARCH_LESS_H
#define ARCH_LESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch_read.h"
#include "io/write.h"

/* Writes `from` without the key and without tensors whose names have `lack` in them. */
static inline const char *less(const char *from, const char *key, const char *lack)
{
    static char path[64];
    sl_err err;
    io_model *m = NULL;
    io_out *o = NULL;
    char at[256];
    snprintf(path, sizeof path, "/tmp/sluice-test-%d.gguf", (int)getpid());
    snprintf(at, sizeof at, "%s/%s", TEST_TINY, from);
    ASSERT_OK(io_open(at, false, &m, &err));
    ASSERT_OK(io_out_open(path, IO_GGUF, &o, &err));
    for (int i = 0; i < io_n_meta(m); i++)
        if (!key || !strstr(io_meta_key(m, i), key)) io_out_copy(o, m, i);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < io_n_tensor(m); i++) {
            const struct tensor *t = io_tensor(m, i);
            if (lack && strstr(t->name, lack)) continue;
            if (pass)
                ASSERT_OK(io_out_write(o, t->data, t->n_bytes, &err));
            else
                io_out_tensor(o, t->name, t->type, t->n_dim, t->shape);
        }
        if (!pass) ASSERT_OK(io_out_begin(o, &err));
    }
    ASSERT_OK(io_out_commit(o, &err));
    io_close(m);
    return path;
}

/* Its configuration, and what says of its tensors that all have a place. */
static inline void read_file(const char *path, struct read *r)
{
    io_model *m = NULL;
    const char *text = NULL;
    memset(r, 0, sizeof *r);
    mem_arena_init(&r->arena, MEM_MISC, 0);
    sl_err err;
    ASSERT_OK(io_open(path, false, &m, &err));
    r->st = arch_cfg_read(m, &r->arena, &r->cfg, &r->err);
    if (!r->st) r->st = arch_unused(m, &r->cfg, &r->arena, &text, &r->err);
    io_close(m);
}

#endif
