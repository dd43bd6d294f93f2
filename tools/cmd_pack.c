/* SPDX-License-Identifier: Apache-2.0 */
/* sluice pack: the weights in the layout that this CPU's kernels read, as a file that later starts
 * map and run at once. */
#include "base/str.h"
#include "cmd.h"
#include "text/json.h"

struct pack_opts {
    struct opt_common common;
    bool check, cache, force;
};

// clang-format off
static const struct opt opts[] = {
    {"cache",   0,  OPT_FLAG, offsetof(struct pack_opts, cache),
     NULL, NULL, 0, 0, "write into the cache folder instead of beside the model"},
    {"check",   0,  OPT_FLAG, offsetof(struct pack_opts, check),
     NULL, NULL, 0, 0, "read a packed file and compare every checksum"},
    {"force",   0,  OPT_FLAG, offsetof(struct pack_opts, force),
     NULL, NULL, 0, 0, "replace a file that is no packed file"},
    {"threads",'t', OPT_INT,  offsetof(struct pack_opts, common.threads),
     "N", "0", 0, OPT_THREADS_MAX, "worker threads (0: physical cores)"},
    OPT_ROWS_BASIC(struct pack_opts),
    {0},
};
// clang-format on

static sl_status print(const struct pack_opts *o, const sl_pack_info *i, sl_err *err)
{
    struct str s;
    struct json_w w;
    double gbps = (double)(o->check ? i->bytes : i->source_bytes) / i->ms * 1e-6;
    if (!o->common.json) {
        printf(o->check ? "%s: %d matrices, %.2f GB, all as they were packed (%.1f s, %.2f GB/s)\n"
                        : "%s: %d matrices, %.2f GB (%.1f s, %.2f GB/s of the source)\n",
               i->path, i->n_matrix, (double)i->bytes * 1e-9, i->ms * 1e-3, gbps);
        return SL_OK;
    }
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "path");
    text_jw_strz(&w, i->path);
    text_jw_key(&w, "bytes");
    text_jw_int(&w, i->bytes);
    text_jw_key(&w, "matrices");
    text_jw_int(&w, i->n_matrix);
    text_jw_key(&w, "ms");
    text_jw_real(&w, i->ms, 6);
    text_jw_key(&w, "gbps");
    text_jw_real(&w, gbps, 4);
    text_jw_obj_end(&w);
    sl_status st = str_status(&s, err);
    if (!st) printf("%s\n", str_c(&s));
    str_fini(&s);
    return st;
}

static int run(struct cmd_ctx *x)
{
    const struct pack_opts *o = x->opts;
    static sl_pack_info info;
    struct cmd_progress progress;
    sl_err err = {0};
    const char *src = x->rest.v[0], *dst = x->rest.n > 1 ? x->rest.v[1] : NULL;
    if (o->check && (dst || o->cache || o->force))
        return cmd_usage("--check: takes one packed file and nothing else");
    if (dst && o->cache) return cmd_usage("--cache: DST is given too");
    cmd_progress_init(&progress, o->common.quiet);
    sl_pack_opts po = {.n_thread = o->common.threads,
                       .cache = o->cache,
                       .force = o->force,
                       .progress = cmd_progress_bytes,
                       .user = &progress};
    sl_status st =
        o->check ? sl_pack_check(src, &po, &info, &err) : sl_pack(src, dst, &po, &info, &err);
    cmd_progress_end(&progress);
    if (!st) st = print(o, &info, &err);
    return st ? cmd_fail(&err) : CMD_OK;
}

const struct cmd cmd_pack = {
    .name = "pack",
    .summary = "write the weights as this CPU reads them, for starts at once",
    .usage = "SRC [DST] [--cache] [--force] | --check FILE",
    .about = "DST is SRC.packed where it is not given. Later starts of SRC find it there (or in "
             "the cache folder) and\n"
             "map it; -m DST runs it without its source.",
    .example = "sluice pack demo /tmp/demo.packed && sluice run -m /tmp/demo.packed -p 'The "
               "capital of France is'",
    .opts = opts,
    .opts_bytes = sizeof(struct pack_opts),
    .n_arg_min = 1,
    .n_arg_max = 2,
    .run = run,
};
