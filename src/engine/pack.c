/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files around an engine: where they lie, which of them fits, making one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine_internal.h"
#include "io/mock.h"
#include "os/os.h"

#define PATH_BYTES 4096
#define TABLE_BYTES ((int64_t)64 << 20) /* of a packed file, beyond the weights, at most */

/* ---- where they lie ---- */

/* The file that stands for a model: the first of its GGUF files, or its folder. */
static const char *source_of(const io_model *io)
{
    return io_model_kind(io) == IO_GGUF ? io_file_path(io, 0) : io_path(io);
}

static bool beside(const char *src, char *out, size_t n)
{
    size_t len = strlen(src);
    while (len > 1 && src[len - 1] == '/')
        len--;
    int k = snprintf(out, n, "%.*s.packed", (int)len, src);
    return k > 0 && (size_t)k < n;
}

static bool in_cache(const char *src, char *out, size_t n)
{
    char full[PATH_BYTES];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = xdg && xdg[0] == '/';
    if ((!own && (!home || !*home)) || !os_path_full(src, full, sizeof full)) return false;
    int k = snprintf(out, n, "%s%s/sluice/pack/%.100s-%016llx.packed", own ? xdg : home,
                     own ? "" : "/.cache", str_base(full),
                     (unsigned long long)hash_bytes(full, strlen(full), 0));
    return k > 0 && (size_t)k < n;
}

static bool place(const char *src, sl_pack_cache where, char *out, size_t n)
{
    return where == SL_PACK_IN_CACHE ? in_cache(src, out, n) : beside(src, out, n);
}

/* ---- finding one ---- */

static bool try_one(sl_model *m, const char *path)
{
    sl_err why;
    io_pack *p = NULL;
    if (os_path_kind(path) != OS_FILE) return false;
    if (io_pack_open(path, &p, &why)) {
        log_msg(LOG_WARN, "packed file not used: %s", why.text);
        return false;
    }
    if (io_pack_fits(p, m->io, &why)) {
        m->pack = p;
        return true;
    }
    log_msg(LOG_WARN, "packed file not used: %s: %s", path, why.text);
    io_pack_close(p);
    return false;
}

void engine_pack_find(sl_model *m)
{
    char path[PATH_BYTES];
    const char *src = source_of(m->io);
    if (io_model_pack(m->io)) return;
    if (beside(src, path, sizeof path) && try_one(m, path)) return;
    if (in_cache(src, path, sizeof path)) (void)try_one(m, path);
}

/* Why an engine on d can not run from p; NULL = it can. */
static const char *misfit(const io_pack *p, const dev *d)
{
    struct dev_info info;
    dev_info_get(d, &info);
    if (strcmp(io_pack_layout(p), dev_layout(d)) != 0)
        return "it is in another layout than this sluice runs";
    if (info.acts == DEV_ACTS_F32 && !io_pack_exact(p))
        return "kv_b was rounded to bf16 in it, which must not be in f32";
    return NULL;
}

/* ---- making one ---- */

struct watch {
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
};

static int packing(void *user, const char *what, int64_t done, int64_t total)
{
    struct watch *w = user;
    (void)what;
    return w->progress ? w->progress(w->user, "packing to a file", done, total) : 0;
}

/* The folder of path is there, and has room. */
static sl_status check_room(const sl_model *m, const char *path, bool make, sl_err *err)
{
    char dir[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof dir) return SL_FAIL(err, IO, "%.100s...: the name is too long", path);
    memcpy(dir, slash ? path : ".", slash ? n : 1);
    dir[slash ? n : 1] = 0;
    if (slash && n == 0) memcpy(dir, "/", 2);
    if (make) SL_TRY(os_make_dirs(dir, err));
    int64_t left = os_free_bytes(dir), need = m->bytes + m->bytes / 16 + TABLE_BYTES;
    if (left < 0 || left >= need) return SL_OK;
    return SL_FAIL(err, IO, "%.150s: %.3f GB may be needed, %.3f are free", dir,
                   (double)need * 1e-9, (double)left * 1e-9);
}

static sl_status write_pack(const sl_model *m, dev *d, const char *path, const struct watch *watch,
                            sl_err *err)
{
    io_pack_out *o = NULL;
    bool exact = false;
    os_out_sweep(path);
    SL_TRY(io_pack_out_open(path, m->io, dev_layout(d), &o, err));
    const struct model_opts told = {.progress = packing, .user = (void *)(uintptr_t)watch};
    sl_status st = model_pack(m->io, d, &told, o, &exact, err);
    if (!st) return io_pack_out_commit(o, exact, err);
    io_pack_out_abort(o);
    return st;
}

sl_status engine_pack_of(const sl_model *m, const dev *d, const io_pack **out, sl_err *err)
{
    const io_pack *direct = io_model_pack(m->io), *p = direct ? direct : m->pack;
    const char *bad = p ? misfit(p, d) : NULL;
    *out = bad ? NULL : p;
    if (bad && direct)
        return SL_FAIL(err, UNSUPPORTED, "%.120s: can not be run: %s: take its source",
                       io_pack_path(p), bad);
    if (bad) log_msg(LOG_WARN, "packed file not used: %s: %s", io_pack_path(p), bad);
    return SL_OK;
}

sl_status engine_pack_use(sl_engine *e, const io_pack **out, sl_err *err)
{
    char path[PATH_BYTES];
    sl_err why;
    const sl_model *m = e->m;
    *out = e->pack;
    if (e->pack) return SL_OK; /* the device was opened again */
    SL_TRY(engine_pack_of(m, e->d, out, err));
    if (*out || e->opts.acts == SL_ACTS_F32 ||
        (m->pack_cache != SL_PACK_BESIDE && m->pack_cache != SL_PACK_IN_CACHE))
        return SL_OK;
    if (!place(source_of(m->io), m->pack_cache, path, sizeof path)) {
        log_msg(
            LOG_WARN,
            "packed weights are not kept: there is no place for them ($XDG_CACHE_HOME or $HOME)");
        return SL_OK;
    }
    struct watch w = {e->opts.progress, e->opts.user};
    sl_status st = check_room(m, path, m->pack_cache == SL_PACK_IN_CACHE, &why);
    if (!st) st = write_pack(m, e->d, path, &w, &why);
    if (!st) st = io_pack_open(path, &e->pack, &why);
    if (st == SL_CANCELLED) {
        if (err) *err = why;
        return st;
    }
    if (st) log_msg(LOG_WARN, "packed weights are not kept: %s", why.text);
    *out = e->pack;
    return SL_OK;
}

/* ---- by hand ---- */

/* Is path one of the model's own files? A packed file can not be packed again, nor quantised: it is
 * no replacement for its source. */
static bool is_source(const io_model *io, const char *path)
{
    char a[PATH_BYTES], b[PATH_BYTES];
    if (!os_path_full(path, a, sizeof a)) return false;
    for (int i = 0; i < io_n_file(io); i++)
        if (os_path_full(io_file_path(io, i), b, sizeof b) && strcmp(a, b) == 0) return true;
    return false;
}

static sl_status pack_to(const sl_model *m, const char *dst, const sl_pack_opts *o,
                         sl_pack_info *out, sl_err *err)
{
    dev *d = NULL;
    io_pack *p = NULL;
    struct watch w = {o->progress, o->user};
    bool f32 = arch_wants_f32(m->io, &m->cfg);
    struct dev_opts dopts = {.n_thread = o->n_thread, .acts = f32 ? DEV_ACTS_F32 : DEV_ACTS_AUTO};
    int64_t t0 = clock_now_ns();
    if (dst) {
        int k = snprintf(out->path, sizeof out->path, "%s", dst);
        if (k < 0 || (size_t)k >= sizeof out->path)
            return SL_FAIL(err, REQUEST, "%.100s...: the name is too long", dst);
    } else if (!place(source_of(m->io), o->cache ? SL_PACK_IN_CACHE : SL_PACK_BESIDE, out->path,
                      sizeof out->path)) {
        return SL_FAIL(err, IO, "there is no place for a packed file: set XDG_CACHE_HOME or HOME");
    }
    if (is_source(m->io, out->path))
        return SL_FAIL(err, REQUEST, "%.150s: is the source itself: give another DST", out->path);
    if (os_path_kind(out->path) != OS_NONE && !o->force && !io_pack_is(out->path))
        return SL_FAIL(err, REQUEST,
                       "%.150s: is there already and is no packed file: --force replaces it",
                       out->path);
    SL_TRY(check_room(m, out->path, o->cache && !dst, err));
    sl_status st = dev_open(NULL, &dopts, &d, err);
    if (!st) st = write_pack(m, d, out->path, &w, err);
    dev_close(d);
    if (!st) st = io_pack_open(out->path, &p, err);
    if (st) return st;
    out->bytes = (int64_t)io_pack_bytes(p);
    out->source_bytes = m->bytes;
    out->n_matrix = io_pack_n_mat(p);
    out->ms = (double)(clock_now_ns() - t0) * 1e-6;
    io_pack_close(p);
    return SL_OK;
}

sl_status sl_pack(const char *name, const char *dst, const sl_pack_opts *opts, sl_pack_info *out,
                  sl_err *err)
{
    static const sl_pack_opts none;
    sl_model *m = NULL;
    sl_model_opts mo = {.pack_cache = SL_PACK_IGNORE};
    memset(out, 0, sizeof *out);
    SL_TRY(sl_model_open(name, &mo, &m, err));
    sl_status st;
    if (io_model_pack(m->io))
        st = SL_FAIL(err, REQUEST, "%.160s: is packed already", io_path(m->io));
    else if (io_is_mock(m->io))
        st = SL_FAIL(err, REQUEST, "%.160s: mock weights are not packed to a file", name);
    else
        st = pack_to(m, dst, opts ? opts : &none, out, err);
    sl_model_close(m);
    return st;
}

sl_status sl_pack_check(const char *path, const sl_pack_opts *opts, sl_pack_info *out, sl_err *err)
{
    static const sl_pack_opts none;
    io_pack *p = NULL;
    int64_t t0 = clock_now_ns(), done = 0;
    if (!opts) opts = &none;
    memset(out, 0, sizeof *out);
    snprintf(out->path, sizeof out->path, "%s", path);
    SL_TRY(io_pack_open(path, &p, err));
    sl_status st = SL_OK;
    for (int i = 0; i < io_pack_n_mat(p) && !st; i++) {
        st = io_pack_check(p, i, err);
        done += (int64_t)io_pack_mat_at(p, i)->n_bytes;
        if (!st && opts->progress &&
            opts->progress(opts->user, "checking", done, (int64_t)io_pack_bytes(p)))
            st = SL_FAIL(err, CANCELLED, "cancelled");
    }
    out->bytes = (int64_t)io_pack_bytes(p);
    out->n_matrix = io_pack_n_mat(p);
    out->ms = (double)(clock_now_ns() - t0) * 1e-6;
    io_pack_close(p);
    return st;
}
