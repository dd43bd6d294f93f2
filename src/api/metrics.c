/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: Prometheus text. Names of vLLM where it has one, so that its dashboards work. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "base/clock.h"

static const double seconds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                 0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
static const double per_token[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                   0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,     2.5};
static const double tokens[] = {1,   2,    5,    10,   20,  50,  100, 200,
                                500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5};

static const double samples[] = {1, 2, 5, 10, 20};

static void set(struct net_hist *h, const double *bound, int n)
{
    h->bound = bound;
    h->n = n;
}

void api_metrics_init(api *a)
{
    struct api_metrics *m = &a->metrics;
    struct net_hist *s[] = {&m->ttft, &m->e2e, &m->queue, &m->prefill, &m->decode, &m->inference};
    for (int i = 0; i < BASE_COUNT_OF(s); i++)
        set(s[i], seconds, BASE_COUNT_OF(seconds));
    set(&m->tpot, per_token, BASE_COUNT_OF(per_token));
    set(&m->itl, per_token, BASE_COUNT_OF(per_token));
    set(&m->max_tokens, tokens, BASE_COUNT_OF(tokens));
    set(&m->n_sample, samples, BASE_COUNT_OF(samples));
    set(&m->n_prompt, tokens, BASE_COUNT_OF(tokens));
    set(&m->n_answer, tokens, BASE_COUNT_OF(tokens));
}

void api_metrics_done(api *a, const struct api_job *j, const struct api_event *ev)
{
    struct api_metrics *m = &a->metrics;
    net_count_add(&m->finish[ev->finish], 1);
    if (ev->finish == SL_FINISH_CANCELLED || ev->finish == SL_FINISH_ERROR) return;
    double ttft = (double)ev->ttft_ns * 1e-9, done = (double)ev->done_ns * 1e-9,
           queue = (double)ev->queue_ns * 1e-9;
    net_hist_add(&m->ttft, ttft);
    net_hist_add(&m->e2e, done);
    net_hist_add(&m->queue, queue);
    net_hist_add(&m->prefill, ttft - queue);
    net_hist_add(&m->decode, done - ttft);
    net_hist_add(&m->inference, done - queue);
    net_hist_add(&m->n_prompt, ev->n_prompt);
    net_hist_add(&m->n_answer, ev->n_token);
    if (ev->n_token > 1) net_hist_add(&m->tpot, (done - ttft) / (ev->n_token - 1));
    if (ev->n_token > 1)
        net_hist_add_n(&m->itl, (done - ttft) / (ev->n_token - 1), ev->n_token - 1);
    if (j->g->q.max_tokens > 0) net_hist_add(&m->max_tokens, j->g->q.max_tokens);
    net_hist_add(&m->n_sample, j->g->n);
}

#define DEVICE_MAX 8 /* that are told of */

struct put {
    struct str *out;
    const char *label;
};

static void value(const struct put *p, const char *name, const char *kind, const char *help,
                  double v)
{
    net_metric_head(p->out, name, kind, help);
    net_metric_value(p->out, name, p->label, v);
}

static void hist(const struct put *p, const char *name, const char *help, const struct net_hist *h)
{
    net_metric_head(p->out, name, "histogram", help);
    net_metric_hist(p->out, name, p->label, h);
}

static void finished(const api *a, const struct put *p)
{
    static const char *const reason[SL_N_FINISH] = {NULL,     "stop",  "stop",
                                                    "length", "abort", "error"};
    char label[400];
    uint64_t n[SL_N_FINISH];
    for (int i = 0; i < SL_N_FINISH; i++)
        n[i] = net_count_get(&a->metrics.finish[i]);
    n[SL_FINISH_STOP] += n[SL_FINISH_STOP_STRING];
    net_metric_head(p->out, "vllm:request_success_total", "counter", "Requests that ended, by why");
    for (int i = 1; i < SL_N_FINISH; i++) {
        if (i == SL_FINISH_STOP_STRING) continue;
        snprintf(label, sizeof label, "%s,finished_reason=\"%s\"", p->label, reason[i]);
        net_metric_value(p->out, "vllm:request_success_total", label, (double)n[i]);
    }
    net_metric_head(p->out, "http_requests_total", "counter", "The same as vLLM names it");
    for (int i = 1; i < 6; i++) {
        snprintf(label, sizeof label, "%s,status=\"%dxx\"", p->label, i);
        net_metric_value(p->out, "http_requests_total", label,
                         (double)net_count_get(&a->metrics.http[i]));
    }
    net_metric_head(p->out, "sluice:http_responses_total", "counter", "Replies by class of status");
    for (int i = 1; i < 6; i++) {
        snprintf(label, sizeof label, "%s,status=\"%dxx\"", p->label, i);
        net_metric_value(p->out, "sluice:http_responses_total", label,
                         (double)net_count_get(&a->metrics.http[i]));
    }
}

/* Speculation, under vLLM's names. */
static void drafts(const struct put *p, const sl_stats *s)
{
    static const char name[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    char label[400];
    uint64_t n_draft = 0, n_right = 0;
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        n_draft += s->n_draft[j];
        n_right += s->n_right[j];
    }
    double n_row = (double)(s->n_answer_tok - n_right);
    value(p, "vllm:spec_decode_num_drafts_total", "counter", "Steps of a sequence with drafts",
          (double)s->n_draft_row);
    value(p, "vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts computed",
          (double)n_draft);
    value(p, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that were right",
          (double)n_right);
    net_metric_head(p->out, name, "counter", "The same by place");
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        snprintf(label, sizeof label, "%s,position=\"%d\"", p->label, j);
        net_metric_value(p->out, name, label, (double)s->n_right[j]);
    }
    net_metric_head(p->out, "sluice:draft_k", "counter", "Steps of a sequence with k drafts");
    for (int k = 0; k <= SL_DRAFT_MAX; k++) {
        double most = k ? (double)s->n_draft[k - 1] : BASE_MAX(n_row, (double)s->n_draft[0]);
        snprintf(label, sizeof label, "%s,k=\"%d\"", p->label, k);
        net_metric_value(p->out, "sluice:draft_k", label,
                         most - (k < SL_DRAFT_MAX ? (double)s->n_draft[k] : 0));
    }
    value(p, "sluice:tokens_per_step", "gauge", "Tokens of a sequence in a step, since the start",
          n_row > 0 ? (double)s->n_answer_tok / n_row : 0);
    value(p, "sluice:draft_seconds_total", "counter", "Time for making drafts",
          (double)s->draft_ns * 1e-9);
    value(p, "sluice:draft_stops_total", "counter",
          "Times drafts were switched off because they did not pay", (double)s->n_draft_stop);
}

/* Engines elsewhere: that came back, that compute prompts, and for whom this one does. */
static void apart(const struct put *p, const sl_stats *s)
{
    double time = (double)s->kv_in_ns, wait = (double)s->kv_wait_ns;
    value(p, "sluice:replays_total", "counter",
          "Requests that went on when an engine came back", (double)s->n_replay);
    value(p, "sluice:group_restarts_total", "counter", "Times that an attached engine came back",
          (double)s->n_restart);
    value(p, "sluice:kv_transfers_total", "counter",
          "Prompts whose keys and values another engine computed, all of them",
          (double)s->n_prefill_by);
    value(p, "sluice:kv_transfers_lost_total", "counter",
          "Prompts that were to come so, and were computed here after all, or their rest",
          (double)s->n_prefill_lost);
    value(p, "sluice:kv_transfer_bytes_total", "counter", "Keys and values that came so",
          (double)s->kv_in_bytes);
    value(p, "sluice:kv_transfer_seconds_total", "counter",
          "Time from a prompt's first page to its last", time * 1e-9);
    value(p, "sluice:kv_transfer_wait_seconds_total", "counter",
          "Of it, and around it, what was after the prompt was computed", wait * 1e-9);
    value(p, "sluice:kv_given_total", "counter", "Prompts computed for another engine",
          (double)s->n_kv_out);
    value(p, "sluice:kv_given_bytes_total", "counter", "Keys and values given to it",
          (double)s->kv_out_bytes);
}

/* What lies where (docs/devices.md). */
static void devices(const api *a, const struct put *p)
{
    sl_device_info d[DEVICE_MAX];
    char label[500];
    int n = sl_engine_devices(a->o.engine, d, DEVICE_MAX);
    net_metric_head(p->out, "sluice:device_bytes", "gauge", "Memory of a device by its use");
    for (int i = 0; i < n && i < DEVICE_MAX; i++)
        for (int kv = 0; kv < 2; kv++) {
            snprintf(label, sizeof label, "%s,device=\"%.60s\",use=\"%s\"", p->label, d[i].name,
                     kv ? "kv" : "weights");
            net_metric_value(p->out, "sluice:device_bytes", label,
                             (double)(kv ? d[i].kv_bytes : d[i].weight_bytes));
        }
}

/* Experts that change ranks. */
static void moves(const struct put *p, const sl_stats *s)
{
    value(p, "sluice:rebalances_total", "counter", "Passes in which experts changed ranks",
          (double)s->n_rebalance);
    value(p, "sluice:placement_number", "gauge", "Times that ranks began to use other experts",
          (double)s->n_placement);
    value(p, "sluice:placement_loads_total", "counter", "Experts that ranks have read for that",
          (double)s->n_expert_moved);
    value(p, "sluice:placement_failures_total", "counter", "Times that a rank could not",
          (double)s->n_move_failed);
    if (s->rank_load_ppm)
        value(p, "sluice:placement_load_ratio", "gauge",
              "After the last pass: the fullest rank's over the mean",
              (double)s->rank_load_ppm * 1e-6);
}

/* Experts on two devices. */
static void hot(const struct put *p, const sl_stats *s)
{
    value(p, "sluice:hot_expert_hits_total", "counter",
          "Terms of experts that lie on the device beside the CPU", (double)s->n_hot_hit);
    value(p, "sluice:hot_expert_misses_total", "counter",
          "Terms of other experts of their layers, by the CPU", (double)s->n_hot_miss);
    value(p, "sluice:hot_expert_saved_bytes_total", "counter",
          "Weights that the CPU did not read for it", (double)s->hot_saved_bytes);
    value(p, "sluice:hot_expert_updates_total", "counter",
          "Times that other experts became hot", (double)s->n_hot_update);
}

/* Experts that came to a device for a prompt. */
static void streamed(const struct put *p, const sl_stats *s)
{
    value(p, "sluice:stream_steps_total", "counter",
          "Steps whose experts were streamed through the device", (double)s->n_stream_step);
    value(p, "sluice:stream_tokens_total", "counter", "Tokens of these steps",
          (double)s->n_stream_tok);
    value(p, "sluice:stream_bytes_total", "counter", "Weights that were sent for them",
          (double)s->stream_bytes);
}

static void engine(const api *a, const struct put *p)
{
    sl_stats s;
    sl_grammar_cache_info grammar;
    sl_stats_get(a->o.engine, &s);
    double kv = s.kv_total_tok ? (double)s.kv_used_tok / (double)s.kv_total_tok : 0;
    double busy = (double)s.step_ns * 1e-9,
           gbps = s.decode_ns ? (double)a->ei.bytes_per_token * (double)s.n_step / (double)s.step_ns
                              : 0;
    value(p, "vllm:num_requests_running", "gauge", "Requests being computed", s.n_running);
    value(p, "vllm:num_requests_waiting", "gauge", "Requests in the queue", s.n_waiting);
    value(p, "vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1", kv);
    value(p, "vllm:gpu_cache_usage_perc", "gauge", "The same under its older name", kv);
    value(p, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the cache",
          (double)s.cache_query_tok);
    value(p, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there",
          (double)s.cache_hit_tok);
    value(p, "vllm:num_preemptions_total", "counter", "Requests that lost their KV blocks",
          (double)s.n_preempt);
    value(p, "vllm:prompt_tokens_total", "counter", "Prompt tokens computed",
          (double)s.n_prompt_tok);
    value(p, "vllm:generation_tokens_total", "counter", "Tokens of answers",
          (double)s.n_answer_tok);
    value(p, "sluice:steps_total", "counter", "Steps of the engine", (double)s.n_step);
    value(p, "sluice:step_seconds_total", "counter", "Time in steps", busy);
    value(p, "sluice:decode_seconds_total", "counter", "Of it for answers",
          (double)s.decode_ns * 1e-9);
    value(p, "sluice:prefill_seconds_total", "counter", "Of it for prompts",
          (double)s.prefill_ns * 1e-9);
    value(p, "sluice:last_step_seconds", "gauge", "The last step", (double)s.last_step_ns * 1e-9);
    value(p, "sluice:cache_evictions_total", "counter", "Cached KV blocks given up",
          (double)s.n_evict);
    value(p, "sluice:kv_cached_tokens", "gauge", "KV held for reuse only", (double)s.kv_cached_tok);
    value(p, "sluice:kv_window_tokens", "gauge", "KV of layers with a sliding window",
          (double)s.window_total_tok);
    value(p, "sluice:kv_window_used_tokens", "gauge", "Of them those that sequences see",
          (double)s.window_used_tok);
    value(p, "sluice:nan_total", "counter", "Requests that ended because the model gave no number",
          (double)s.n_nan);
    value(p, "sluice:failed_steps_total", "counter", "Steps that the device could not compute",
          (double)s.n_step_failed);
    value(p, "sluice:timeout_total", "counter", "Requests that ended at their time limit",
          (double)s.n_timeout);
    moves(p, &s);
    apart(p, &s);
    value(p, "sluice:bandwidth_gbps", "gauge",
          "Weight bytes of one token times steps over their time, 1e9 bytes per second", gbps);
    value(p, "sluice:device_fallback", "gauge",
          "1: the CPU stands in for a device that could not be opened", a->ei.fallback);
    value(p, "sluice:device_reopens_total", "counter",
          "Times that a device was lost and opened again", (double)s.n_reopen);
    drafts(p, &s);
    hot(p, &s);
    streamed(p, &s);
    devices(a, p);
    sl_grammar_cache_info_get(a->gcache, &grammar);
    value(p, "sluice:grammar_cache_hits_total", "counter",
          "Requests whose grammar was compiled before",
          (double)grammar.n_hit);
    value(p, "sluice:grammar_cache_misses_total", "counter", "Grammars compiled",
          (double)grammar.n_miss);
    value(p, "sluice:grammar_cache_entries", "gauge", "Compiled grammars kept", grammar.n);
    value(p, "sluice:grammar_cache_bytes", "gauge", "Their memory", (double)grammar.bytes);
    value(p, "sluice:grammar_masks_total", "counter", "Token masks computed", (double)s.n_mask);
    value(p, "sluice:grammar_mask_seconds_total", "counter", "Time for them",
          (double)s.mask_ns * 1e-9);
    if (a->o.read_gbps > 0)
        value(p, "sluice:roofline_ratio", "gauge", "The same over the measured read bandwidth",
              gbps / a->o.read_gbps);
}

sl_status api_metrics_get(api *a, struct net_req *r, sl_err *err)
{
    const struct api_metrics *m = &a->metrics;
    struct str s;
    char label[300];
    (void)err;
    str_init(&s, MEM_REQUEST, 0);
    snprintf(label, sizeof label, "model_name=\"");
    size_t n = strlen(label);
    for (const char *c = a->name; *c && n < sizeof label - 4; c++) {
        if (*c == '"' || *c == '\\') label[n++] = '\\';
        label[n++] = *c == '\n' ? ' ' : *c;
    }
    label[n++] = '"';
    label[n] = 0;
    struct put p = {&s, label};
    engine(a, &p);
    api_routing_put(a, &s, label);
    api_stages_put(a, &s, label);
    finished(a, &p);
    hist(&p, "vllm:time_to_first_token_seconds", "Submit to first token", &m->ttft);
    hist(&p, "vllm:request_time_per_output_token_seconds",
         "Mean time between the tokens of an answer", &m->tpot);
    hist(&p, "vllm:time_per_output_token_seconds", "The same under its older name", &m->tpot);
    hist(&p, "vllm:inter_token_latency_seconds", "Time between two tokens, a mean of each answer",
         &m->itl);
    hist(&p, "vllm:e2e_request_latency_seconds", "Submit to last token", &m->e2e);
    hist(&p, "vllm:request_queue_time_seconds", "Submit to admission", &m->queue);
    hist(&p, "vllm:request_prefill_time_seconds", "Admission to first token", &m->prefill);
    hist(&p, "vllm:request_decode_time_seconds", "First to last token", &m->decode);
    hist(&p, "vllm:request_inference_time_seconds", "Admission to last token", &m->inference);
    hist(&p, "vllm:request_params_n", "Samples asked for", &m->n_sample);
    hist(&p, "vllm:request_params_max_tokens", "Lengths asked for", &m->max_tokens);
    hist(&p, "vllm:request_max_num_generation_tokens", "Answer lengths under another name",
         &m->n_answer);
    hist(&p, "vllm:request_prompt_tokens", "Prompt lengths", &m->n_prompt);
    hist(&p, "vllm:request_generation_tokens", "Answer lengths", &m->n_answer);
    value(&p, "sluice:http_requests_active", "gauge", "HTTP requests that are not over",
          net_server_active(r->server));
    value(&p, "sluice:http_connections", "gauge", "Open connections", net_server_conns(r->server));
    value(&p, "sluice:push_seconds_total", "counter",
          "Time in which the engine's thread wrote to streams", net_server_push_s(r->server));
    value(&p, "sluice:refused_total", "counter", "Requests refused for lack of room",
          (double)net_count_get(&m->n_refused));
    value(&p, "sluice:auth_failed_total", "counter", "Requests without a valid key",
          (double)net_count_get(&m->n_auth_failed));
    net_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", &s);
    return SL_OK;
}
