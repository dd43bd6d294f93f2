/* SPDX-License-Identifier: Apache-2.0 */
/* The same result whatever the company (docs/reliability.md N1, N3, K6, K8, K10): every row of
 * logits that a request sees is compared, bit for bit, with the row that it sees alone. A trial
 * draws threads (1 to 4), chunk (1 to 512), sequences (1 to 32), the size of the KV cache (down to
 * one context, so that requests are preempted and computed again), scattered blocks, the prefix
 * tree on or off (with hashes that all collide or not, dropped now and then), and which requests
 * come when, with which priority, owner and salt, in how many samples, and which are cancelled
 * when. Freed blocks are filled with NaN.
 *
 * trials DIR N [SEED [NAME]] [--acts auto|int8|bf16|f32] [--kv bf16|f16|q8|f32] [--state]
 * [--layout L] [--layouts] [--move] [--defer N] [--apart L]: models: the .gguf files of DIR, and
 * the folders without a .gguf file of their name (with NAME in it, or one of several with commas
 * between them); N trials over all of them. Without --acts and --kv another form comes with every
 * model, and small quantised ones run in int8 as well, which they do not take by default.
 * --state: every other layer has a recurrent state in place of keys and values, and requests also
 * go back to earlier positions. --layout: the company runs on so many ranks, what is alone on one;
 * models that can not be shared so are named; with dp alone, steps are cut in halves in every other
 * trial (micro). --move: of a layout with ep, experts have copies now and then and change ranks
 * while steps go on. --layouts: each of the N trials of every model, in int8, bf16 and f32 (or
 * --acts), has a random layout of at most 8 ranks: its experts placed at random, with copies, rows
 * gathered or swapped, stages with lanes or without; batches of up to 8, pieces of up to 64 tokens,
 * and caches so small that requests are preempted. --defer: N experts of a token come late, of
 * models that have them. --apart: another engine computes prompts, on ranks of layout L (tp=1:
 * one), and of some trials loses or damages what it stores. SL_CPU caps the instruction set. Prints
 * one line per model and the trial of a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "dist/dist.h"
#include "../unit/apart.h"
#include "engine/engine_internal.h"
#include "os/os.h"

#define N_REQ 32
#define PROMPT_MAX 200
#define NEW_MAX 48
#define CTX (PROMPT_MAX + NEW_MAX + 4)

struct spec {
    int32_t ids[PROMPT_MAX];
    int n_prompt, n_new;
    uint64_t seed;
    uint64_t row[NEW_MAX]; /* hash of the logits before token i, alone */
    int32_t token[NEW_MAX];
};

/* A numeric form. */
struct form {
    int acts; /* sl_acts */
    int kv;   /* sl_kv */
};

struct trial {
    struct spec *spec;
    struct form form;
    const char *layout; /* of those in company */
    char drawn[64];     /* with layouts: it */
    const char *apart;  /* NULL, or of the engine that computes their prompts */
    long long n_by, n_lost; /* prompts that came so, and that did not or not whole */
    int n_defer;
    bool move, layouts;
    uint64_t *load; /* [layers, experts] random counts, for --move */
    long long n_moved, n_use; /* experts, times that ranks began to use some */
    int n_vocab, n_bad, n_row;
    bool record, state;
    uint64_t rng;
    long long n_home[DIST_RANK_MAX]; /* trials in which that one had requests */
    long long n_back, n_trial, n_req, n_cancel, n_preempt, n_hit, n_step;
};

static void tap(void *user, const struct request *r, const float *logit)
{
    struct trial *t = user;
    struct spec *s = r->g->user;
    int i = r->n_ids - r->n_prompt;
    uint64_t h = hash_bytes(logit, (size_t)t->n_vocab * sizeof *logit, 0);
    if (r->index > 0 && i > 0) return; /* other samples go other ways after the first row */
    if (i > 0 && t->record) s->token[i - 1] = r->ids[r->n_ids - 1];
    if (i > 0 && !t->record && s->token[i - 1] != r->ids[r->n_ids - 1]) t->n_bad++;
    if (t->record)
        s->row[i] = h;
    else
        t->n_bad += s->row[i] != h;
    t->n_row++;
}

static void on_event(void *user, const sl_event *ev)
{
    (void)user;
    if (ev->finish != SL_FINISH_ERROR) return;
    fprintf(stderr, "trials: request failed: %s\n", ev->error);
    exit(1);
}

static int pick(struct trial *t, int n)
{
    return (int)(rng_next(&t->rng) % (uint64_t)n);
}

static void must(sl_status st, const sl_err *err)
{
    if (!st) return;
    fprintf(stderr, "trials: %s\n", err->text);
    exit(1);
}

static uint64_t submit(sl_engine *e, struct spec *s, struct trial *t)
{
    sl_err err;
    uint64_t id;
    sl_request q = {.ids = s->ids,
                    .n_ids = s->n_prompt,
                    .max_tokens = s->n_new,
                    .ignore_eos = 1,
                    .n_logprob = -1,
                    .sampling = {.temperature = 1, .seed = s->seed},
                    .on_event = on_event,
                    .user = s};
    if (!t->record) {
        q.priority = pick(t, 4) ? 0 : pick(t, 5) - 2;
        q.owner = (uint64_t)pick(t, 3);
        q.cache_salt = (uint64_t)(pick(t, 5) == 0);
        q.no_cache = pick(t, 10) == 0;
        q.n = pick(t, 6) ? 1 : 1 + pick(t, 3);
        t->n_req += q.n;
    }
    must(sl_submit(e, &q, &id, &err), &err);
    return id;
}

/* A step that a lane has under way was told before the block was freed: it may copy it, and whoever
 * gets it writes into it later. */
static bool under_way(const sl_engine *e)
{
    bool any = false;
    for (int i = 0; e->lane && i < e->n_lane; i++)
        any = any || e->lane[i].under_way;
    return any;
}

static void poison(void *user, int32_t blk)
{
    sl_engine *e = user;
    if (under_way(e)) return;
    dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
}

static void poison_window(void *user, int32_t win)
{
    sl_engine *e = user;
    if (under_way(e)) return;
    dev_kv_poison(e->d, e->kv, DEV_KV_WINDOW, win);
}

static sl_engine *open_engine(sl_model *m, sl_engine_opts o, struct trial *t)
{
    sl_err err;
    sl_engine *e = NULL;
    must(sl_engine_open(m, &o, &e, &err), &err);
    e->tap = tap;
    e->tap_user = t;
    for (int h = 1; h < e->n_home; h++)
        ASSERT(!e->home[h].pool->on_free); /* whose cache another rank has */
    e->pool.on_free = poison;              /* docs/reliability.md K10: nobody reads a freed block */
    e->pool.on_win_free = poison_window;
    e->pool.user = e;
    return e;
}

static void run_all(sl_engine *e)
{
    sl_err err;
    while (sl_pending(e))
        must(sl_step(e, &err), &err);
}

/* The requests of a model, and what each sees alone. */
static void make_specs(sl_model *m, struct trial *t)
{
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    t->n_vocab = mi.n_vocab;
    t->record = true;
    sl_engine *e = open_engine(m,
                               (sl_engine_opts){.n_thread = 1,
                                                .n_ctx = CTX,
                                                .n_seq_max = 1,
                                                .no_reuse = 1,
                                                .n_defer = t->n_defer,
                                                .acts = (sl_acts)t->form.acts,
                                                .kv = (sl_kv)t->form.kv},
                               t);
    for (int i = 0; i < N_REQ; i++) {
        struct spec *s = &t->spec[i];
        *s = (struct spec){.n_prompt = 1 + pick(t, i % 4 ? 80 : PROMPT_MAX),
                           .n_new = 1 + pick(t, NEW_MAX),
                           .seed = rng_next(&t->rng)};
        for (int k = 0; k < s->n_prompt; k++) /* half of them begin alike */
            s->ids[k] = i % 2 && k < 70 ? (k * 7 + 3) % mi.n_vocab
                                        : (int32_t)(rng_next(&t->rng) % (uint64_t)mi.n_vocab);
        submit(e, s, t);
        run_all(e);
    }
    sl_engine_close(e);
    t->record = false;
}

/* A running request forgets its last positions, and computes them once more. */
static void go_back(sl_engine *e, struct trial *t)
{
    int slot = sched_running(&e->sched, 0);
    if (slot < 0) return;
    int had = sched_request(&e->sched, slot)->n_done;
    if (had) t->n_back += sched_rewind(&e->sched, slot, had - 1 - pick(t, had)) >= 0;
}

/* Experts in random places, some of them twice, and room to move them. */
static void spread(const sl_model *m, struct trial *t, sl_engine_opts *o)
{
    struct dist_layout l;
    int n = m->cfg.n_layer * m->cfg.n_expert;
    if (!t->layout || dist_layout_parse(t->layout, &l, NULL)) return;
    if (t->layouts && l.dp > 1) o->dispatch = pick(t, 2) ? "swap" : "gather";
    const char *device = getenv("SL_DEVICE");
    if (l.dp > 1 && l.tp * l.pp == 1 && (!device || !*device)) o->micro = 1 + pick(t, 2);
    if ((!t->move && !t->layouts) || l.ep < 2) return;
    t->load = realloc(t->load, (size_t)n * sizeof *t->load);
    for (int i = 0; i < n; i++)
        t->load[i] = (uint64_t)pick(t, 100);
    o->expert_load = t->load;
    o->n_expert_load = m->cfg.n_layer;
    o->redundant = pick(t, 2) * l.ep;
    if (t->layouts) o->redundant += (l.ep - m->cfg.n_expert % l.ep) % l.ep;
    if (!t->move) return;
    o->n_spare = 1 + pick(t, 3);
    o->place_mbps = 1 << 20;
    if (pick(t, 2)) o->place_from = "peer";
}

/* A layout that the model can have. */
static void draw_layout(const sl_model *m, struct trial *t)
{
    for (;;) {
        int tp = 1 + pick(t, 4), pp = 1 + pick(t, BASE_MIN(m->cfg.n_layer, 4)), dp = 1, n_kv;
        if (m->cfg.n_expert) dp += pick(t, 4);
        int n = tp * dp * pp, ep = m->cfg.n_expert ? 1 + pick(t, tp * dp) : 1;
        n_kv = m->cfg.kv_lora ? m->cfg.n_head : m->cfg.n_head_kv;
        if (n < 2 || n > 8 || tp > n_kv || tp * dp % ep || ep > BASE_MAX(m->cfg.n_expert, 1))
            continue;
        int at = snprintf(t->drawn, sizeof t->drawn, "tp=%d,dp=%d,pp=%d,ep=%d", tp, dp, pp,
                          ep);
        for (int i = 0, some = pick(t, 2); some && tp * dp > 1 && i < tp * dp; i++)
            at += snprintf(t->drawn + at, sizeof t->drawn - (size_t)at, "%s%d",
                           i ? ":" : ",weight=", 1 + pick(t, 4));
        t->layout = t->drawn;
        sl_engine_opts o = {.n_thread = 8, .n_ctx = CTX, .n_seq_max = 1, .layout = t->layout};
        sl_engine *e = NULL;
        sl_err err;
        uint64_t rng = t->rng;
        spread(m, t, &o);
        sl_status st = sl_engine_open((sl_model *)(uintptr_t)m, &o, &e, &err);
        sl_engine_close(e);
        t->rng = rng + (uint64_t)st;
        if (st != SL_OK && st != SL_REQUEST && st != SL_UNSUPPORTED) must(st, &err);
        if (st == SL_OK) return;
    }
}

/* Another engine computes the prompts of e. */
static void open_apart(sl_model *m, sl_engine *e, sl_engine_opts o, struct apart *a,
                       struct trial *t)
{
    static const enum apart_fault fault[] = {APART_NONE,  APART_NONE, APART_NONE, APART_FLIP,
                                             APART_LATER, APART_MISS, APART_FAIL, APART_BUSY};
    sl_err err;
    memset(a, 0, sizeof *a);
    o.layout = t->apart;
    o.micro = 0;
    o.expert_load = NULL;
    o.n_expert_load = o.redundant = o.n_spare = 0;
    o.n_thread = 4;
    o.n_chunk = 1 + pick(t, 128);
    o.n_seq_max = 1 + pick(t, 8);
    o.kv_tokens = CTX * (1 + pick(t, 3));
    must(sl_engine_open(m, &o, &a->by, &err), &err);
    atomic_store(&a->fault, (int)fault[pick(t, BASE_COUNT_OF(fault))]);
    atomic_store(&a->at, pick(t, 20));
    must(apart_open(a, m, &err), &err);
    must(sl_prefill_by(e, a->link, 1 + pick(t, 64), &err), &err);
}

/* What came of it; the engines are closed. */
static void end_trial(sl_engine *e, struct trial *t, struct apart *apart)
{
    sl_stats st;
    sl_stats_get(e, &st);
    t->n_cancel += (long long)st.n_finish[SL_FINISH_CANCELLED];
    t->n_preempt += (long long)st.n_preempt;
    t->n_hit += (long long)st.cache_hit_tok;
    t->n_step += (long long)st.n_step;
    t->n_moved += (long long)st.n_expert_moved;
    t->n_use += (long long)st.n_placement;
    t->n_bad += (int)st.n_move_failed;
    t->n_by += (long long)st.n_prefill_by;
    t->n_lost += (long long)st.n_prefill_lost;
    for (int h = 0; h < e->n_home; h++) {
        const struct kv_pool *p = e->home[h].pool;
        if (kv_pool_avail(p) != p->n_blk) t->n_bad++; /* a block leaked */
        if (kv_win_avail(p) != p->n_win) t->n_bad++;
        t->n_home[h] += sched_totals_get(e->home[h].sched).n_query_tok > 0;
    }
    sl_engine_close(e);
    if (t->apart) {
        t->n_bad += apart_lost(apart->by);
        apart_fini(apart);
    }
}

static void one_trial(sl_model *m, struct trial *t)
{
    struct apart apart;
    int chunk = 1 + pick(t, 1 << pick(t, 10)), batch = 1 + pick(t, 32), n = 1 + pick(t, batch);
    if (t->layouts) {
        draw_layout(m, t);
        setenv("SL_LANES", pick(t, 4) ? "8" : "1", 1);
        chunk = 1 + pick(t, 64);
        batch = 1 + pick(t, 8);
        n = 4 + pick(t, 6);
    }
    sl_engine_opts o = {.n_thread = 1 + pick(t, 4),
                        .n_ctx = CTX,
                        .n_seq_max = batch,
                        .n_chunk = BASE_MIN(chunk, 512),
                        .no_reuse = pick(t, 2),
                        .acts = (sl_acts)t->form.acts,
                        .kv = (sl_kv)t->form.kv,
                        .layout = t->layout,
                        .n_defer = t->n_defer,
                        .n_queue_max = 3 * N_REQ};
    uint64_t some = 0;
    if (t->layout) o.n_thread = BASE_MAX(o.n_thread, t->layouts ? 8 : 4);
    spread(m, t, &o);
    o.kv_tokens = CTX + (pick(t, 3) ? pick(t, CTX * 2) : CTX * batch);
    if (t->layouts) o.kv_tokens = CTX + pick(t, CTX / 2);
    sl_engine *e = open_engine(m, o, t);
    if (t->apart) open_apart(m, e, o, &apart, t);
    bool collide = pick(t, 4) == 0;
    for (int h = 0; h < e->n_home; h++) {
        kv_pool_shuffle(e->home[h].pool, rng_next(&t->rng) | 1);
        if (collide) e->home[h].pool->hash_mask = 0xff;
    }
    for (int i = 0; i < n; i++) {
        sl_err err;
        uint64_t id = submit(e, &t->spec[pick(t, N_REQ)], t);
        if (pick(t, 4) == 0) some = id;
        for (int k = pick(t, 4); k > 0; k--)
            must(sl_step(e, &err), &err);
        if (some && pick(t, 3) == 0) {
            sl_cancel(e, some);
            some = 0;
        }
        if (pick(t, 15) == 0) sl_drop_cache(e);
        if (o.n_spare && pick(t, 2)) must(sl_rebalance(e, &err), &err);
        if (t->state && pick(t, 3) == 0) go_back(e, t);
    }
    run_all(e);
    end_trial(e, t, &apart);
    if (t->n_bad) {
        fprintf(
            stderr,
            "trials: %d rows differ: threads %d chunk %d batch %d requests %d kv %lld reuse %d "
            "%s%s micro %d\n",
            t->n_bad, o.n_thread, o.n_chunk, batch, n, (long long)o.kv_tokens, !o.no_reuse,
            t->layout ? "layout " : "", t->layout ? t->layout : "", o.micro);
        exit(1);
    }
}

static const char *const acts_name[] = {"auto", "int8", "bf16", "f32"}; /* as sl_acts */
static const char *const kv_name[] = {"bf16", "f16", "q8", "f32"};      /* as KV_OF */
static const int KV_OF[] = {SL_KV_BF16, SL_KV_F16, SL_KV_Q8, SL_KV_F32};

static int find(const char *name, const char *const *of)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(name, of[i]) == 0) return i;
    fprintf(stderr, "trials: %s: unknown\n", name);
    exit(2);
}

/* n trials of one model. Returns how many rows were compared. */
static int trials(sl_model *m, struct trial *t, const char *name, int acts, int kv, int n)
{
    t->form = (struct form){acts, KV_OF[kv]};
    make_specs(m, t);
    t->n_row = 0;
    for (int k = 0; k < n; k++)
        one_trial(m, t);
    t->n_trial += n;
    printf("%-30s --acts %-4s --kv %-4s %4d trials, %6d rows bitwise equal\n", name,
           acts_name[acts], kv_name[kv], n, t->n_row);
    fflush(stdout);
    return t->n_row;
}

static bool is_model(const char *dir, const char *name)
{
    char config[1024], gguf[1024];
    size_t len = strlen(name);
    if (strstr(name, "-of-") && !strstr(name, "-00001-of-")) return false;
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) return true;
    snprintf(config, sizeof config, "%s/%s/config.json", dir, name);
    snprintf(gguf, sizeof gguf, "%s/%s.gguf", dir, name);
    return os_path_kind(config) == OS_FILE && os_path_kind(gguf) != OS_FILE &&
           !strstr(name, "part");
}

/* Has name one of those in it? */
static bool is_named(const char *name, const char *list)
{
    char one[256];
    for (const char *p = list; *p; p += strspn(p, ",")) {
        size_t n = strcspn(p, ",");
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        if (strstr(name, one)) return true;
        p += n;
    }
    return false;
}

struct args {
    const char *dir, *name, *layout, *apart;
    int n_trial, n_defer, acts, kv; /* -1: by turns */
    bool state, move, layouts;
    uint64_t seed;
};

static bool takes(sl_model *m, const struct args *a, char *why, size_t n)
{
    sl_engine_opts o = {
        .n_thread = 4, .n_ctx = CTX, .n_seq_max = 1, .layout = a->layout, .n_defer = a->n_defer};
    sl_engine *e = NULL;
    sl_err err;
    sl_status st = sl_engine_open(m, &o, &e, &err);
    if (!st && a->apart) {
        sl_engine_close(e);
        e = NULL;
        o.layout = a->apart;
        st = sl_engine_open(m, &o, &e, &err);
        if (!st && !e->info.kv_hash) st = SL_FAIL(&err, UNSUPPORTED, "its cache stays");
    }
    sl_engine_close(e);
    if (st != SL_OK && st != SL_REQUEST && st != SL_UNSUPPORTED) must(st, &err);
    if (st) snprintf(why, n, "%.190s", err.text);
    return st == SL_OK;
}

/* Every other layer with keys and values per head has a recurrent state in their place; models that
 * have states stay as they are. */
static void with_state(struct arch_cfg *c)
{
    for (int i = 1; i < c->n_layer && !c->n_delta_k; i += 2)
        if (c->layer[i].mixer == ARCH_GQA) c->layer[i].mixer = ARCH_SCAN;
}

static void one_model(const struct args *a, const char *name, int i_model, int n, struct trial *t,
                      int *total)
{
    char path[1024];
    sl_err err;
    sl_model *m = NULL;
    int acts = a->acts >= 0 ? a->acts : i_model % 4;
    int kv = a->kv >= 0 ? a->kv : (i_model + i_model / 4) % 4;
    snprintf(path, sizeof path, "%s/%s", a->dir, name);
    must(sl_model_open(path, NULL, &m, &err), &err);
    t->layout = a->layout;
    t->n_defer = a->n_defer;
    t->move = a->move;
    t->layouts = a->layouts;
    t->apart = a->apart;
    char why[200] = "";
    bool asked = a->layout || a->n_defer || a->apart || getenv("SL_PLACE");
    if (asked && !takes(m, a, why, sizeof why)) {
        printf("%-30s can not be run so: %s\n", name, why);
        sl_model_close(m);
        return;
    }
    if (a->state) {
        with_state(&m->cfg);
        m->edit = with_state;
        t->state = true;
    }
    for (int i = 1; a->layouts && i < 4; i++)
        if (a->acts < 0 || a->acts == i) *total += trials(m, t, name, i, (kv + i) % 4, a->n_trial);
    if (a->layouts) {
        sl_model_close(m);
        return;
    }
    *total += trials(m, t, name, acts, kv, n);
    if (strncmp(name, "q_", 2) == 0 && a->acts < 0 && acts != 1) /* int8 */
        *total += trials(m, t, name, 1, kv, n);
    sl_model_close(m);
}

static struct args parse(int argc, char **argv)
{
    struct args a = {.acts = -1, .kv = -1, .seed = 1};
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--acts") == 0 && i + 1 < argc)
            a.acts = find(argv[++i], acts_name);
        else if (strcmp(argv[i], "--kv") == 0 && i + 1 < argc)
            a.kv = find(argv[++i], kv_name);
        else if (strcmp(argv[i], "--state") == 0)
            a.state = true;
        else if (strcmp(argv[i], "--layout") == 0 && i + 1 < argc)
            a.layout = argv[++i];
        else if (strcmp(argv[i], "--layouts") == 0)
            a.layouts = true;
        else if (strcmp(argv[i], "--move") == 0)
            a.move = true;
        else if (strcmp(argv[i], "--apart") == 0 && i + 1 < argc)
            a.apart = argv[++i];
        else if (strcmp(argv[i], "--defer") == 0 && i + 1 < argc)
            a.n_defer = atoi(argv[++i]);
        else if (n++ == 0)
            a.dir = argv[i];
        else if (n == 2)
            a.n_trial = atoi(argv[i]);
        else if (n == 3)
            a.seed = strtoull(argv[i], NULL, 10);
        else
            a.name = argv[i];
    }
    if (n >= 2) return a;
    fprintf(stderr,
            "trials DIR N [SEED [NAME]] [--acts A] [--kv K] [--state] [--layout L] [--layouts] "
            "[--move] [--defer N] [--apart L]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static struct spec spec[N_REQ];
    struct trial all = {.spec = spec};
    struct args a = parse(argc, argv);
    char **names = NULL;
    int n_name = 0, n_model = 0, i_model = 0, total = 0;
    sl_err err;
    must(os_list(a.dir, &names, &n_name, &err), &err);
    for (int i = 0; i < n_name; i++) /* those that count come first */
        if (is_model(a.dir, names[i]) && (!a.name || is_named(names[i], a.name))) {
            char *name = names[i];
            names[i] = names[n_model];
            names[n_model++] = name;
        }
    for (; i_model < n_model; i_model++) {
        int n = a.n_trial * (i_model + 1) / n_model - a.n_trial * i_model / n_model;
        struct trial t = all;
        t.rng = a.seed + (uint64_t)i_model * 7919;
        one_model(&a, names[i_model], i_model, n, &t, &total);
        all = t;
    }
    os_list_free(names, n_name);
    printf(
        "%lld trials of %lld requests in %lld steps, %lld cancelled, %lld preemptions, %lld tokens "
        "from the prefix tree; %d rows: all bitwise equal\n",
        all.n_trial, all.n_req, all.n_step, all.n_cancel, all.n_preempt, all.n_hit, total);
    for (int h = 0; h < DIST_RANK_MAX && all.n_home[1]; h++)
        if (all.n_home[h]) printf("home %d had requests in %lld trials\n", h, all.n_home[h]);
    if (a.state) printf("%lld times back to an earlier position\n", all.n_back);
    if (a.move) printf("%lld experts moved in %lld times\n", all.n_moved, all.n_use);
    if (a.apart)
        printf("%lld prompts came from elsewhere, %lld not or not whole\n", all.n_by, all.n_lost);
    free(all.load);
    if (a.apart && !(all.n_by && all.n_lost)) return 1;
    bool states = all.n_back && all.n_preempt && all.n_hit;
    if (a.layouts && !all.n_preempt) return 1;
    return total > 0 && (!a.state || states) && (!a.move || all.n_moved) ? 0 : 1;
}
