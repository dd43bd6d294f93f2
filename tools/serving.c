/* SPDX-License-Identifier: Apache-2.0 */
/* What a service may still open, and its engine's options. */
#include "serving.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "compute.h"
#include "dev/dev.h"
#include "dist/dist.h"
#include "engine/find.h"
#include "os/os.h"
#include "place.h"

#ifdef SL_SERVE
#include "gate/gate.h"
#include "net/local.h"
#endif

#define PATHS_MAX 48

sl_engine_opts serving_engine_opts(const struct batch_opts *b)
{
    return (sl_engine_opts){.n_seq_max = b->max_batch,
                            .n_queue_max = b->max_queue,
                            .kv_tokens = b->kv_tokens,
                            .no_reuse = b->prefix_cache == 1,
                            .layout = "auto"};
}

void serving_ranks(const struct compute *c, const struct opt_common *o)
{
    int n = sl_ranks(c->e, NULL, 0);
    if (n > 1 && !o->layout && !o->quiet)
        fprintf(stderr, "sluice: layout tp=%d: a rank on each memory node\n", n);
}

void serving_experts(struct compute *c, const struct opt_common *o)
{
    sl_err err = {0};
    if (compute_experts(c, o, &err)) log_msg(LOG_WARN, "--expert-stats: %s", err.text);
}

const char *serving_folder(struct arena *a, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    char *out = NULL;
    if (!path) return NULL;
    if (!slash) return ".";
    if (mem_arena_str(a, path, slash == path ? 1 : (size_t)(slash - path), &out, NULL)) return ".";
    return out;
}

/* The folder that a file is really in, where path is a link (a hub's cache is made of them). */
static const char *real_folder(struct arena *a, const char *dir, const char *path)
{
    char real[PATH_MAX], *copy = NULL;
    struct str s;
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "%s%s%s", dir ? dir : "", dir ? "/" : "", path);
    bool ok = !str_status(&s, NULL) && realpath(str_c(&s), real) &&
              !mem_arena_str(a, real, strlen(real), &copy, NULL);
    str_fini(&s);
    return ok ? serving_folder(a, copy) : NULL;
}

static const char *cache_folder(struct arena *a)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct str s;
    char *out = NULL;
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "%s%s/sluice",
               base && *base ? base
               : home        ? home
                             : "/nowhere",
               base && *base ? "" : "/.cache");
    if (mem_arena_str(a, str_c(&s), s.n, &out, NULL)) out = NULL;
    str_fini(&s);
    return out;
}

/* Does a text of placement, "PART=NAME;...", or a list of devices name a card after a `before`? */
static bool names_card(const char *s, char before)
{
    for (; s && (s = strchr(s, before)); s++)
        if (dev_is_card(s + 1)) return true;
    return false;
}

/* Some of the model lies on a card, which needs its driver. */
static bool lies_on_card(const struct opt_common *o)
{
    char buf[4096], first[128];
    const char *place = NULL;
    if (place_option(o, 0, buf, sizeof buf, &place, NULL)) return true; /* it will not start */
    return dev_is_card(dev_name_or_default(place_device(o, first, sizeof first))) ||
           names_card(place ? place : getenv("SL_PLACE"), '=') || names_card(o->device, ',');
}

/* The folders of LD_LIBRARY_PATH, at most n of them. */
static int library_folders(struct arena *a, const char **out, int n)
{
    const char *s = getenv("LD_LIBRARY_PATH");
    int k = 0;
    for (; s && *s && k < n; s += strspn(s, ":")) {
        size_t len = strcspn(s, ":");
        char *copy = NULL;
        if (!mem_arena_str(a, s, len, &copy, NULL)) out[k++] = copy;
        s += len;
    }
    return k;
}

/* Cards of NVIDIA's: of machines with eight, and parts of cards (MIG). */
static const char *const nvidia[] = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/nvidia-caps",
    "/dev/nvidia0",   "/dev/nvidia1",    "/dev/nvidia2",        "/dev/nvidia3",
    "/dev/nvidia4",   "/dev/nvidia5",    "/dev/nvidia6",        "/dev/nvidia7"};

sl_status serving_sandbox(const struct opt_common *o, const struct os_path *more, int n_more,
                          struct arena *a, sl_err *err)
{
    const char *large = NULL, *small = NULL;
    bool active = false;
    SL_TRY(compute_model_path(o, &large, err));
    SL_TRY(engine_find_model(large, a, &large, err));
    if (o->draft_model) SL_TRY(engine_find_model(o->draft_model, a, &small, err));
    bool small_dir = small && os_path_kind(small) == OS_DIR;
    bool dir = os_path_kind(large) == OS_DIR, apart = compute_apart(o);
    bool card = lies_on_card(o), libs = apart || card;
    const char *folder[4] = {NULL}; /* a driver may be elsewhere than in /usr */
    if (card) (void)library_folders(a, folder, BASE_COUNT_OF(folder));
    char module[PATH_MAX] = "";
    const char *session = getenv("OMPI_MCA_orte_top_session_dir");
    if (apart) (void)dist_mpi_module(module, sizeof module);
    const struct os_path path[] = {
        {dir ? large : serving_folder(a, large), OS_READ},
        {real_folder(a, dir ? large : NULL, dir ? "config.json" : large), OS_READ},
        {small_dir ? small : serving_folder(a, small), OS_READ},
        {small ? real_folder(a, small_dir ? small : NULL, small_dir ? "config.json" : small) : NULL,
         OS_READ},
        {serving_folder(a, o->chat_template), OS_READ},
        {serving_folder(a, o->record), OS_WRITE},
        {serving_folder(a, o->expert_stats), OS_WRITE},
        {serving_folder(a, o->hot_from), OS_READ},
        {cache_folder(a), OS_WRITE},
        {"/proc", OS_READ},
        {"/sys", OS_READ},
        {"/dev/null", OS_WRITE},
        /* MPI, Vulkan and CUDA: their libraries and settings, what processes share, cards */
        {*module ? module : NULL, OS_READ},
        {libs ? "/usr" : NULL, OS_READ},
        {libs ? "/opt" : NULL, OS_READ},
        {libs ? "/etc" : NULL, OS_READ},
        {folder[0], OS_READ},
        {folder[1], OS_READ},
        {folder[2], OS_READ},
        {folder[3], OS_READ},
        {card ? "/dev/dri" : NULL, OS_WRITE},
        {apart ? "/dev/shm" : NULL, OS_WRITE},
        {apart ? session ? session : "/tmp" : NULL, OS_WRITE_DIRS}};
    struct os_path all[PATHS_MAX];
    int n = BASE_COUNT_OF(path);
    ASSERT(n + BASE_COUNT_OF(nvidia) + n_more <= PATHS_MAX);
    memcpy(all, path, sizeof path);
    for (int i = 0; card && i < BASE_COUNT_OF(nvidia); i++)
        all[n++] = (struct os_path){nvidia[i], OS_WRITE};
    memcpy(all + n, more, (size_t)n_more * sizeof *more);
    SL_TRY(os_sandbox_files(all, n + n_more, &active, err));
    log_msg(LOG_INFO, "sandbox: files %s", active ? "limited" : "not limited: no Landlock here");
    return SL_OK;
}

#ifdef SL_SERVE
sl_status serving_prefill(struct compute *c, const struct prefill_opts *o, gate_prefill **out,
                          sl_err *err)
{
    struct gate_prefill_opts po = {
        .model = c->m, .engine = c->e, .n_path = o->at.n, .from_tok = o->from_tok};
    *out = NULL;
    if (!o->at.n) return SL_OK;
    if (o->at.n > GATE_GROUP_MAX)
        return SL_FAIL(err, REQUEST, "--prefill: %d engines: at most %d", o->at.n, GATE_GROUP_MAX);
    for (int i = 0; i < o->at.n; i++) {
        sl_status st = net_local_path(o->at.v[i], &po.path[i], err);
        if (st) status_prefix(err, "--prefill");
        SL_TRY(st);
    }
    return gate_prefill_open(&po, out, err);
}
#endif
