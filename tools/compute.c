/* SPDX-License-Identifier: Apache-2.0 */
/* Opens model and engine from a command's options, and reads prompts from files. */
#include "compute.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/dist.h"
#include "os/os.h"
#include "os/share.h"
#include "place.h"

#define SPARE 2 /* of --rebalance */
#define READ_MAX ((uint64_t)1 << 30)

/* Processes of a launcher; with a layout that nobody understands, too: rank 0 says so for all. */
bool compute_apart(const struct opt_common *o)
{
    struct dist_layout l;
    return o->layout && dist_launched().n > 1 &&
           (dist_layout_parse(o->layout, &l, NULL) || dist_layout_ranks(&l) > 1);
}

bool compute_follows(const struct opt_common *o)
{
    return compute_apart(o) && dist_launched().rank > 0;
}

/* When a process ends with an error a launcher ends the others: so rank 0, which says what all
 * know, has its time for that, and what only this one knows comes after it. */
enum knows { ALL_KNOW, ONE_KNOWS, HOME_FAILED };

BASE_NORETURN static void end_follower(sl_status st, const sl_err *err, enum knows who)
{
    if (st && who != HOME_FAILED)
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    if (st && who != ALL_KNOW && !cmd_stop) (void)cmd_fail(err);
    exit(cmd_flush(st ? CMD_FAILED : CMD_OK));
}

/* Of HOST=PATH: is it this machine's, by its full name or that up to the first dot? */
static bool is_here(const char *text, const char *host)
{
    size_t n = strcspn(text, "=");
    return strncmp(text, host, n) == 0 && (!host[n] || host[n] == '.');
}

sl_status compute_model_path(const struct opt_common *o, const char **out, sl_err *err)
{
    const struct opt_strs *dir = &o->model_dir;
    char host[256];
    *out = o->model;
    os_host_name(host, sizeof host);
    for (int i = 0; i < dir->n; i++) {
        const char *text = dir->v[i], *eq = strchr(text, '=');
        if (!eq || eq == text || !eq[1])
            return SL_FAIL(err, REQUEST, "--model-dir: %.100s: expected HOST=PATH", text);
        if (is_here(text, host)) *out = eq + 1;
        for (int k = 0; k < i; k++)
            if (strncmp(dir->v[k], text, (size_t)(eq - text) + 1) == 0)
                return SL_FAIL(err, REQUEST, "--model-dir: %.*s is there twice",
                               (int)BASE_MIN(eq - text, 60), text);
    }
    if (dir->n && !compute_apart(o))
        return SL_FAIL(err, REQUEST,
                       "--model-dir: goes with --layout and several processes (mpirun, srun): of "
                       "one the model is what --model says");
    return SL_OK;
}

sl_status compute_model_name(const struct opt_common *o, char *buf, size_t n, const char **out,
                             sl_err *err)
{
    SL_TRY(compute_model_path(o, out, err));
    if (!o->mock && o->mock_type)
        return SL_FAIL(err, REQUEST, "--mock-type: goes with --mock");
    if (!o->mock) return SL_OK;
    int k = snprintf(buf, n, "mock%s%s:%s", o->mock_type ? "=" : "",
                     o->mock_type ? o->mock_type : "", *out ? *out : "");
    *out = buf;
    return k > 0 && (size_t)k < n
               ? SL_OK
               : SL_FAIL(err, REQUEST, "--model: %.60s...: the name is too long", o->model);
}

/* Before the engine is opened: the other processes fail with what this one fails with, or with what
 * a lower rank does. Do they know? */
static bool refuse(const struct opt_common *o, sl_status *st, sl_err *err)
{
    return !cmd_stop && dist_mpi_refuse(o->layout, st, err);
}

/* Hot experts, and the file that says which. */
static sl_status hot_of(const struct opt_common *o, const sl_model *m, sl_engine_opts *eo,
                        void **mem, sl_err *err)
{
    sl_model_info mi;
    SL_TRY(place_hot(o, &eo->n_hot, err));
    eo->hot_update = o->hot_update;
    if (!eo->n_hot && (o->hot_update || o->hot_from))
        return SL_FAIL(err, REQUEST, "--hot-%s: goes with --hot-experts",
                       o->hot_update ? "update" : "from");
    if (!o->hot_from) return SL_OK;
    sl_model_info_get(m, &mi);
    return compute_load_of(o->hot_from, &mi, &(struct compute_load){&eo->hot_load, &eo->n_hot_load},
                           mem, err);
}

/* A process that was started beside rank 0: it never comes back to the command. */
BASE_NORETURN static void follow(struct compute *c, const sl_model_opts *mo, sl_engine_opts *eo,
                                 const struct opt_common *o)
{
    char mock[4096];
    const char *name = NULL;
    sl_err err = {0};
    void *load = NULL, *hot = NULL;
    sl_model_opts own = *mo;
    log_set_level(LOG_ERROR);
    own.progress = NULL;
    if (own.pack_cache != SL_PACK_IGNORE) own.pack_cache = SL_PACK_USE; /* rank 0 writes it */
    eo->progress = NULL;
    sl_status st = compute_model_name(o, mock, sizeof mock, &name, &err);
    if (!st) st = sl_model_open(name, &own, &c->m, &err);
    if (!st) st = compute_expert_load(o, c->m, eo, &load, &err);
    if (!st) st = hot_of(o, c->m, eo, &hot, &err);
    enum knows who = ALL_KNOW; /* opening fails on all */
    if (st) {
        if (!refuse(o, &st, &err)) who = ONE_KNOWS;
        end_follower(st, &err, who);
    }
    st = sl_engine_open(c->m, eo, &c->e, &err);
    mem_free(load);
    mem_free(hot);
    struct dist_layout l;
    bool meets = st != SL_NOTFOUND && !dist_layout_parse(o->layout, &l, NULL);
    if (!meets) who = ONE_KNOWS;
    if (!st) {
        st = sl_follow(c->e, &err);
        if (strncmp(err.text, "rank 0", 6) == 0) who = HOME_FAILED;
    }
    compute_close(c);
    end_follower(st, &err, who);
}

static sl_status open_draft_model(struct compute *c, const struct opt_common *o,
                                  const sl_model_opts *mo, sl_err *err)
{
    sl_model_opts own = {.progress = mo->progress, .user = mo->user};
    own.pack_cache = mo->pack_cache == SL_PACK_IGNORE ? SL_PACK_IGNORE : SL_PACK_USE;
    sl_status st = sl_model_open(o->draft_model, &own, &c->draft_m, err);
    if (st) status_prefix(err, "--draft-model");
    return st;
}

sl_status compute_open(struct compute *c, const struct opt_common *o, const sl_engine_opts *base,
                       sl_err *err)
{
    return compute_open_looking(c, o, base, &(struct compute_look){0}, err);
}

/* Options that are the engine's as they are. */
static void take_opts(sl_engine_opts *eo, const struct opt_common *o)
{
    eo->n_thread = o->threads;
    if (!eo->n_ctx) eo->n_ctx = o->ctx;
    eo->acts = (sl_acts)o->acts;
    eo->kv = (sl_kv)o->kv;
    eo->no_hugepages = o->no_hugepages;
    eo->mem_fraction = o->mem_fraction;
    if (o->layout) eo->layout = o->layout; /* else what the command takes */
    eo->dist_deadline_ms = o->dist_deadline_ms;
    eo->n_defer = o->defer;
    eo->rebalance_s = o->rebalance_s;
    eo->n_spare = o->spare ? o->spare : o->rebalance_s ? SPARE : 0;
    eo->place_mbps = o->place_mbps;
    eo->place_from = o->place_from;
    eo->exact = o->exact;
    eo->no_matrix_units = o->no_matrix_units;
    eo->fallback = o->fallback ? "cpu" : NULL;
    eo->combine = o->combine;
    eo->dispatch = o->dispatch;
    eo->micro = o->micro;
}

sl_status compute_open_looking(struct compute *c, const struct opt_common *o,
                               const sl_engine_opts *base, const struct compute_look *look,
                               sl_err *err)
{
    int64_t t0 = clock_now_ns();
    void *load = NULL, *hot = NULL, *vocab = NULL;
    char place[4096], mock[4096], home[128];
    const char *name = NULL;
    memset(c, 0, sizeof *c);
    bool answers = base && base->draft; /* the caller knows answers */
    if (!answers && o->draft && strncmp(o->draft, "replay", 6) == 0)
        return SL_FAIL(err, REQUEST, "--draft %.40s: no answer is known here to replay", o->draft);
    cmd_progress_init(&c->progress, o->quiet);
    sl_model_opts mo = {.progress = cmd_progress_bytes,
                        .user = &c->progress,
                        .pack_cache = (sl_pack_cache)o->pack_cache,
                        .chat_template_file = o->chat_template};
    sl_engine_opts eo = base ? *base : (sl_engine_opts){0};
    take_opts(&eo, o);
    eo.device = place_device(o, home, sizeof home);
    SL_TRY(place_option(o, 0, place, sizeof place, &eo.place, err));
    SL_TRY(place_stream(o, &eo.stream_from, err));
    if (!eo.n_chunk) eo.n_chunk = o->chunk;
    eo.draft = compute_draft_source(o);
    eo.draft_max = o->draft_max;
    eo.draft_vocab = o->draft_vocab;
    eo.progress = cmd_progress_bytes;
    eo.user = &c->progress;
    if (compute_follows(o)) follow(c, &mo, &eo, o);
    sl_status st = compute_model_name(o, mock, sizeof mock, &name, err);
    if (!st) st = sl_model_open(name, &mo, &c->m, err);
    if (!st) sl_model_info_get(c->m, &c->mi);
    if (!st) st = compute_experts_check(c, o, err);
    if (!st) st = place_option(o, c->mi.n_layer, place, sizeof place, &eo.place, err);
    if (!st && look->fn) st = look->fn(c, look->user, err);
    if (!st && o->draft_model) st = open_draft_model(c, o, &mo, err);
    eo.draft_model = c->draft_m;
    if (!st) st = record_open(o->record, &eo, &c->record, err);
    if (!st) st = compute_expert_load(o, c->m, &eo, &load, err);
    if (!st) st = hot_of(o, c->m, &eo, &hot, err);
    if (!st) st = compute_draft_vocab(o, c->m, &eo, &vocab, err);
    if (st)
        (void)refuse(o, &st, err);
    else
        st = sl_engine_open(c->m, &eo, &c->e, err);
    mem_free(load);
    mem_free(hot);
    mem_free(vocab);
    cmd_progress_end(&c->progress);
    if (!st && cmd_stop) st = SL_FAIL(err, CANCELLED, "cancelled");
    if (st) {
        compute_close(c);
        return st;
    }
    sl_engine_info_get(c->e, &c->ei);
    c->load_ms = (double)(clock_now_ns() - t0) * 1e-6;
    return SL_OK;
}

void compute_close(struct compute *c)
{
    sl_grammar_unref(c->grammar);
    c->grammar = NULL;
    sl_engine_close(c->e);
    sl_model_close(c->m);
    sl_model_close(c->draft_m);
    c->draft_m = NULL;
    compute_experts_close(c);
    record_close(c->record);
    c->record = NULL;
    c->e = NULL;
    c->m = NULL;
}

sl_sampling compute_sampling(const struct sampling_opts *s, uint64_t seed)
{
    return (sl_sampling){.temperature = (float)s->temp,
                         .top_k = s->top_k,
                         /* the engine reads 0 as off; here it means the best only */
                         .top_p = s->top_p > 0 ? (float)s->top_p : 1e-6f,
                         .min_p = (float)s->min_p,
                         .repeat_penalty = (float)s->repeat,
                         .presence_penalty = (float)s->presence,
                         .frequency_penalty = (float)s->frequency,
                         .seed = seed};
}

sl_status compute_read(const char *path, char **text, uint64_t *n, sl_err *err)
{
    if (strcmp(path, "-") != 0) return os_read_once(path, READ_MAX, text, n, err);
    struct str s;
    char buf[65536];
    size_t k;
    str_init(&s, MEM_MISC, READ_MAX);
    while ((k = fread(buf, 1, sizeof buf, stdin)) > 0)
        str_put(&s, buf, k);
    str_put(&s, "", 0);
    sl_status st = str_status(&s, err);
    if (!st && ferror(stdin))
        st = cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled")
                      : SL_FAIL(err, IO, "standard input: read failed");
    if (st) {
        str_fini(&s);
        return st;
    }
    *text = s.p;
    *n = s.n;
    return SL_OK;
}

sl_status compute_read_text(const char *path, char **text, uint64_t *n, sl_err *err)
{
    static const char mark[] = "\xef\xbb\xbf", le[] = "\xff\xfe", be[] = "\xfe\xff";
    char *p = NULL;
    SL_TRY(compute_read(path, &p, n, err));
    if (*n >= 2 && (memcmp(p, le, 2) == 0 || memcmp(p, be, 2) == 0)) {
        mem_free(p);
        return SL_FAIL(err, FORMAT, "%s: UTF-16: save it as UTF-8", path);
    }
    if (*n >= 3 && memcmp(p, mark, 3) == 0) {
        *n -= 3;
        memmove(p, p + 3, *n + 1);
    }
    *text = p;
    return SL_OK;
}

sl_status compute_constrain(struct compute *c, const char *schema, const char *grammar, sl_err *err)
{
    const char *path = schema ? schema : grammar;
    char *text = NULL;
    uint64_t n = 0;
    if (!path) return SL_OK;
    SL_TRY(compute_read_text(path, &text, &n, err));
    sl_status st = sl_grammar_compile(c->m, schema ? SL_GRAMMAR_JSON_SCHEMA : SL_GRAMMAR_GBNF, text,
                                      (size_t)n, &c->grammar, err);
    if (st) status_prefix(err, "%.80s", path);
    mem_free(text);
    return st;
}

/* ---- files of prompts ---- */

sl_status compute_lines(const char *path, char *text, uint64_t n, struct arena *arena,
                        struct compute_lines *out, sl_err *err)
{
    size_t n_line = 0;
    int at = 0;
    void *p = NULL;
    for (uint64_t k = 0; k < n; k++)
        n_line += text[k] == '\n';
    SL_TRY(mem_arena_array(arena, n_line + 1, sizeof *out->v, &p, err));
    *out = (struct compute_lines){.v = p};
    for (char *s = text; s < text + n; at++) {
        char what[160];
        char *end = memchr(s, '\n', (size_t)(text + n - s));
        size_t len = end ? (size_t)(end - s) : (size_t)(text + n - s);
        if (strspn(s, " \t\r") < len) {
            const struct json **v = &out->v[out->n++];
            snprintf(what, sizeof what, "%.100s: line %d", path, at + 1);
            SL_TRY(text_json_parse(arena, what, s, len, v, err));
            const struct json *ids = text_json_get(*v, "ids"),
                              *chat = text_json_get(*v, "messages"),
                              *prompt = text_json_get(*v, "prompt"), *list = ids ? ids : chat;
            bool ok = list ? list->kind == JSON_ARRAY_K : prompt && prompt->kind == JSON_STR_K;
            if (!ok)
                return SL_FAIL(err, FORMAT,
                               "%s: needs \"prompt\" (text), \"messages\" or \"ids\" (lists)",
                               what);
        }
        s += len + 1;
    }
    return SL_OK;
}

sl_status compute_line_chat(const sl_model *m, const struct json *messages, int32_t **ids, int *n,
                            sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_node(&w, messages);
    sl_status st = str_status(&s, err);
    sl_chat chat = {.messages = str_c(&s)};
    if (!st) st = sl_chat_render(m, &chat, NULL, ids, n, err);
    str_fini(&s);
    return st;
}

sl_status compute_line_ids(const struct json *list, struct arena *arena, int32_t **ids, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(arena, list->n + 1, sizeof **ids, &p, err));
    *ids = p;
    for (size_t i = 0; i < list->n; i++) {
        const struct json *v = list->item[i];
        if (v->kind != JSON_INT_K || v->i < INT32_MIN || v->i > INT32_MAX)
            return SL_FAIL(err, REQUEST, "ids: place %zu: not a token id", i);
        (*ids)[i] = (int32_t)v->i;
    }
    return SL_OK;
}

/* ---- drafts ---- */

const char *compute_draft_source(const struct opt_common *o)
{
    return o->draft ? o->draft : o->draft_model ? "auto" : "off";
}

static uint64_t sum_of(const uint64_t *v)
{
    uint64_t n = 0;
    for (int j = 0; j < SL_DRAFT_MAX; j++)
        n += v[j];
    return n;
}

struct compute_draft compute_draft_of(const sl_stats *s)
{
    struct compute_draft d = {0};
    d.n_draft = sum_of(s->n_draft);
    d.n_right = sum_of(s->n_right);
    double n_row = (double)s->n_answer_tok - (double)d.n_right;
    d.per_step = n_row > 0 ? (double)s->n_answer_tok / n_row : 0;
    for (int j = 0; j < SL_DRAFT_MAX && s->n_judged[j]; j++)
        d.right[d.n_pos++] = (double)s->n_right[j] / (double)s->n_judged[j];
    return d;
}

struct compute_draft compute_draft_get(const struct compute *c)
{
    sl_stats s;
    sl_stats_get(c->e, &s);
    return compute_draft_of(&s);
}

void compute_draft_line(const struct compute *c, const char *source)
{
    struct compute_draft d = compute_draft_get(c);
    fprintf(stderr, "draft %s: %.2f tok/step, %llu of %llu right", source, d.per_step,
            (unsigned long long)d.n_right, (unsigned long long)d.n_draft);
    for (int j = 0; j < d.n_pos; j++)
        fprintf(stderr, "%s%.2f", j ? " " : ", by place ", d.right[j]);
    fputc('\n', stderr);
}

void compute_draft_json(const struct compute_draft *d, const char *source, struct json_w *w)
{
    text_jw_key(w, "draft");
    text_jw_obj(w);
    text_jw_key(w, "source");
    text_jw_strz(w, source);
    text_jw_key(w, "drafted");
    text_jw_int(w, (int64_t)d->n_draft);
    text_jw_key(w, "accepted");
    text_jw_int(w, (int64_t)d->n_right);
    text_jw_key(w, "tokens_per_step");
    text_jw_real(w, d->per_step, 6);
    text_jw_key(w, "accepted_by_position");
    text_jw_arr(w);
    for (int j = 0; j < d->n_pos; j++)
        text_jw_real(w, d->right[j], 6);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

/* What ranks cost: waits as a share of their steps, and what each token moves between them. */
struct ranks {
    int n;
    double wait_pct, per_token;
    sl_rank_stat of[64];
};

static struct ranks ranks_get(const struct compute *c)
{
    struct ranks r = {0};
    sl_stats s;
    double wait = 0, bytes = 0;
    r.n = sl_ranks(c->e, r.of, BASE_COUNT_OF(r.of));
    if (r.n == 1) return r;
    for (int i = 0; i < r.n; i++) {
        wait += r.of[i].wait_ms;
        bytes += (double)r.of[i].join_bytes;
    }
    sl_stats_get(c->e, &s);
    double n_tok = (double)(s.n_answer_tok + s.n_prompt_tok);
    if (r.of[0].step_ms > 0) r.wait_pct = 100 * wait / r.n / r.of[0].step_ms;
    if (n_tok > 0) r.per_token = bytes / n_tok;
    return r;
}

void compute_ranks_line(const struct compute *c)
{
    struct ranks r = ranks_get(c);
    if (r.n > 1)
        fprintf(stderr, "%d ranks: waits %.1f %% of their steps, %.3g MB/tok between them\n", r.n,
                r.wait_pct, r.per_token * 1e-6);
}

void compute_ranks_json(const struct compute *c, const char *layout, struct json_w *w)
{
    struct ranks r = ranks_get(c);
    char nodes[24];
    if (r.n == 1) return;
    snprintf(nodes, sizeof nodes, "tp=%d", r.n); /* a rank on each memory node */
    text_jw_key(w, "layout");
    text_jw_strz(w, layout ? layout : nodes);
    text_jw_key(w, "ranks");
    text_jw_int(w, r.n);
    text_jw_key(w, "wait_pct");
    text_jw_real(w, r.wait_pct, 4);
    text_jw_key(w, "wire_bytes_per_token");
    text_jw_int(w, (int64_t)r.per_token);
    text_jw_key(w, "weight_bytes_per_rank");
    text_jw_arr(w);
    for (int i = 0; i < r.n && i < BASE_COUNT_OF(r.of); i++)
        text_jw_int(w, r.of[i].weight_bytes);
    text_jw_arr_end(w);
}

int compute_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

const char *compute_finish_text(sl_finish f)
{
    switch (f) {
    case SL_FINISH_STOP:
        return "stop";
    case SL_FINISH_STOP_STRING:
        return "stop_string";
    case SL_FINISH_LENGTH:
        return "length";
    case SL_FINISH_CANCELLED:
        return "cancelled";
    case SL_FINISH_ERROR:
        return "error";
    case SL_FINISH_NONE:
        break;
    }
    return "none";
}

sl_status compute_print(const struct str *s, sl_err *err)
{
    SL_TRY(str_status(s, err));
    fwrite(str_c(s), 1, s->n, stdout);
    putchar('\n');
    return SL_OK;
}
