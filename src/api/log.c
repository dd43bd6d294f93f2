/* SPDX-License-Identifier: Apache-2.0 */
/* One line per request on stderr: numbers and names of ours, never prompts, answers, keys or what a
 * client wrote into a path. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/api_internal.h"
#include "base/clock.h"

static const char *how(const struct api_job *j)
{
    if (j->failed) return "error";
    return j->ended ? api_finish_text(j->last.finish) : "cancelled";
}

static void now_text(char out[40])
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%03dZ", (int)(t.tv_nsec / 1000000));
}

static void put_job(struct json_w *w, const struct api_job *j)
{
    const struct {
        const char *key;
        int64_t v;
    } row[] = {{"prompt_tokens", j->n_prompt_tok},
               {"completion_tokens", j->n_answer_tok},
               {"cached_tokens", j->n_cached_tok}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        text_jw_key(w, row[i].key);
        text_jw_int(w, row[i].v);
    }
    if (j->last.n_replay) {
        text_jw_key(w, "replays");
        text_jw_int(w, j->last.n_replay);
    }
    text_jw_key(w, "ttft_ms");
    text_jw_real(w, (double)j->last.ttft_ns * 1e-6, 6);
    text_jw_key(w, "stream");
    text_jw_bool(w, j->g->stream);
    text_jw_key(w, "finish");
    text_jw_strz(w, how(j));
}

void api_log(api *a, const struct net_req *r)
{
    const struct api_route *t = r->route;
    const struct api_job *j = api_job_of(r);
    double ms = (double)(clock_now_ns() - r->t0_ns) * 1e-6;
    char when[40], key[64];
    if (!a->o.log_json && !a->o.log_requests) return;
    if (t && t->flags & API_OPEN && r->status == 200) return; /* probes would fill the log */
    now_text(when);
    api_key_name(a, r->key, key);
    if (!a->o.log_json) {
        fprintf(stderr, "sluice: %s %s %s %d %.1f ms%s%s\n", r->id, t ? t->method : "-",
                t ? t->path : "-", r->status, ms, *key ? " key " : "", key);
        return;
    }
    struct json_w w;
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    const struct {
        const char *key, *v;
    } row[] = {
        {"event", "request"},        {"time", when}, {"id", r->id}, {"method", t ? t->method : "-"},
        {"path", t ? t->path : "-"}, {"key", key}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        text_jw_key(&w, row[i].key);
        text_jw_strz(&w, row[i].v);
    }
    text_jw_key(&w, "status");
    text_jw_int(&w, r->status);
    text_jw_key(&w, "ms");
    text_jw_real(&w, ms, 6);
    text_jw_key(&w, "bytes");
    text_jw_int(&w, (int64_t)r->n_sent);
    if (j) put_job(&w, j);
    text_jw_obj_end(&w);
    str_putc(&s, '\n');
    if (!s.failed) fwrite(str_c(&s), 1, s.n, stderr); /* one write: lines of threads do not mix */
    str_fini(&s);
}
