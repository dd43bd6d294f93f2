/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/embeddings: unit vectors, as numbers or as base64 of little-endian floats. */
#include <math.h>
#include <string.h>

#include "api/api_internal.h"

#define INPUT_MAX 2048

struct embedding {
    struct api_gen g;
    struct api_prompts input;
    bool base64;
    float **vec; /* [input.n], in the request's arena */
    int n_vec;
};

static sl_status inputs(const api *a, struct net_req *r, const struct json *body,
                        struct embedding *e, sl_err *err)
{
    const struct json *v = api_field(body, "input");
    void *p = NULL;
    if (!v) return SL_FAIL(err, REQUEST, "input: missing");
    e->input.max = INPUT_MAX;
    SL_TRY(api_prompts_parse(a, &r->arena, "input", v, &e->input, err));
    for (int i = 0; i < e->input.n; i++)
        if (e->input.v[i].text && !*e->input.v[i].text)
            return SL_FAIL(err, REQUEST, "input: place %d: empty", i);
    SL_TRY(mem_arena_array(&r->arena, (size_t)e->input.n, sizeof *e->vec, &p, err));
    e->vec = p;
    return SL_OK;
}

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct embedding *e = j->user;
    void *p = NULL;
    double sum = 0;
    (void)out;
    if (!ev->n_embedding || e->vec[ev->sub]) return;
    if (mem_arena_array(&j->r->arena, (size_t)ev->n_embedding, sizeof(float), &p, &j->err)) return;
    float *v = e->vec[ev->sub] = p;
    e->n_vec = ev->n_embedding;
    for (int i = 0; i < e->n_vec; i++)
        sum += (double)ev->embedding[i] * (double)ev->embedding[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < e->n_vec; i++)
        v[i] = (float)((double)ev->embedding[i] * scale);
}

static void put_base64(struct str *out, const uint8_t *p, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        if (i + 1 < n) v |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < n) v |= p[i + 2];
        char four[4] = {digit[v >> 18], digit[v >> 12 & 63], i + 1 < n ? digit[v >> 6 & 63] : '=',
                        i + 2 < n ? digit[v & 63] : '='};
        str_put(out, four, 4);
    }
}

static void put_vector(struct json_w *w, const struct embedding *e, const float *v)
{
    text_jw_key(w, "embedding");
    if (e->base64) {
        struct str s;
        str_init(&s, MEM_REQUEST, 0);
        put_base64(&s, (const uint8_t *)v, (size_t)e->n_vec * sizeof *v); /* little-endian hosts */
        api_put_text(w, &s);
        str_fini(&s);
        return;
    }
    text_jw_arr(w);
    for (int i = 0; i < e->n_vec; i++)
        text_jw_real(w, (double)v[i], 9);
    text_jw_arr_end(w);
}

static void end(struct api_job *j, struct str *out)
{
    struct embedding *e = j->user;
    struct json_w w;
    struct str s;
    (void)out;
    for (int i = 0; i < e->input.n; i++)
        if (!e->vec[i]) {
            api_error_of(j->a, j->r, &j->err);
            return;
        }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "object");
    text_jw_strz(&w, "list");
    text_jw_key(&w, "data");
    text_jw_arr(&w);
    for (int i = 0; i < e->input.n; i++) {
        text_jw_obj(&w);
        text_jw_key(&w, "object");
        text_jw_strz(&w, "embedding");
        text_jw_key(&w, "index");
        text_jw_int(&w, i);
        put_vector(&w, e, e->vec[i]);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    text_jw_key(&w, "model");
    text_jw_strz(&w, j->g->model);
    text_jw_key(&w, "usage");
    text_jw_obj(&w);
    text_jw_key(&w, "prompt_tokens");
    text_jw_int(&w, j->n_prompt_tok);
    text_jw_key(&w, "total_tokens");
    text_jw_int(&w, j->n_prompt_tok);
    text_jw_obj_end(&w);
    text_jw_obj_end(&w);
    net_reply(j->r, 200, API_JSON, &s);
}

static const struct api_fmt fmt = {event, end, NULL, NULL};

sl_status api_embeddings(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL;
    void *p = NULL;
    SL_TRY(api_body_parse(a, r, API_EMBED, &body, err));
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct embedding), &p, err));
    struct embedding *e = p;
    const char *how = api_field_str(body, "encoding_format", "float"),
               *pool = api_field_str(body, "pooling", "mean");
    if (strcmp(how, "float") != 0 && strcmp(how, "base64") != 0)
        return SL_FAIL(err, REQUEST, "encoding_format: must be float or base64");
    if (strcmp(pool, "mean") != 0 && strcmp(pool, "last") != 0)
        return SL_FAIL(err, REQUEST, "pooling: must be mean or last");
    SL_TRY(api_model_check(a, body, err));
    e->base64 = strcmp(how, "base64") == 0;
    int64_t want = api_field_int(body, "dimensions", a->mi.n_embd);
    if (want != a->mi.n_embd)
        return SL_FAIL(err, REQUEST, "dimensions: %lld: vectors of this model have %d numbers",
                       (long long)want, a->mi.n_embd);
    e->g.body = body;
    e->g.model = api_model_name(a, api_field_str(body, "model", NULL));
    e->g.n = e->g.q.n = 1;
    e->g.q.embed = strcmp(pool, "last") == 0 ? 2 : 1;
    e->g.q.priority = (int)api_field_int(body, "priority", 0);
    e->g.q.timeout_ms = api_field_int(body, "timeout_ms", a->o.timeout_ms);
    e->g.q.owner = (uint64_t)(r->key + 1);
    SL_TRY(inputs(a, r, body, e, err));
    const struct api_ask ask = {&e->g, e->input.v, e->input.n, &fmt, e};
    return api_job_start(a, r, &ask, err);
}
