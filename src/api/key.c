/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: only their SHA-256 is in the file and in memory. One line each:
 *
 *     NAME SHA256-HEX [requests=N] [tokens=N] [parallel=N] [admin]
 *
 * requests and tokens are per minute, parallel at once; # begins a comment. Slots never move,
 * because requests remember theirs; a key that left the file keeps its slot and is dead. What is
 * used of limits counts in net/quota.h, where other servers may count, too: under the name. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api_internal.h"
#include "base/clock.h"
#include "net/quota.h"

#define KEY_MAX 10000
#define FILE_MAX_BYTES (4 << 20)

struct key {
    char name[64];
    uint8_t hash[NET_SHA256_BYTES];
    bool alive, admin;
    struct net_quota_limit max;
    int row; /* of the quota */
    struct api_usage total, unsaved;
};

struct api_keys {
    struct key *key;
    int n, cap;
    net_quota *quota, *own; /* own: this server counts alone */
};

static bool hex(const char *s, uint8_t out[NET_SHA256_BYTES])
{
    for (int i = 0; i < 2 * NET_SHA256_BYTES; i++) {
        int c = tolower((unsigned char)s[i]);
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0) return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | v);
    }
    return !s[2 * NET_SHA256_BYTES];
}

static bool limit(const char *w, const char *name, int64_t *out)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(w, name, n) != 0 || w[n] != '=' || !isdigit((unsigned char)w[n + 1])) return false;
    errno = 0;
    *out = strtoll(w + n + 1, &end, 10);
    return !*end && !errno;
}

/* One line without comment; words are cut in place. */
static sl_status parse_line(char *line, int no, struct key *k, sl_err *err)
{
    char *save = NULL, *w = strtok_r(line, " \t\r", &save);
    memset(k, 0, sizeof *k);
    if (!w) return SL_OK;
    char *name = w;
    w = strtok_r(NULL, " \t\r", &save);
    if (w && strlen(name) >= sizeof k->name)
        return SL_FAIL(err, FORMAT, "key file: line %d: name over %zu bytes", no,
                       sizeof k->name - 1);
    snprintf(k->name, sizeof k->name, "%s", name);
    if (!w || strlen(w) != 2 * NET_SHA256_BYTES || !hex(w, k->hash))
        return SL_FAIL(
            err, FORMAT,
            "key file: line %d: must be a name and, after it, the SHA-256 of the key in 64 "
            "hexadecimal digits (printf %%s KEY | sha256sum)",
            no);
    while ((w = strtok_r(NULL, " \t\r", &save))) {
        if (strcmp(w, "admin") == 0)
            k->admin = true;
        else if (!limit(w, "requests", &k->max.request) && !limit(w, "tokens", &k->max.token) &&
                 !limit(w, "parallel", &k->max.parallel))
            return SL_FAIL(
                err, FORMAT,
                "key file: line %d: \"%.20s\": requests=N, tokens=N, parallel=N or admin", no, w);
    }
    k->alive = true;
    return SL_OK;
}

static struct key *slot(struct api_keys *ks, const char *name, sl_err *err)
{
    void *p = NULL;
    for (int i = 0; i < ks->n; i++)
        if (strcmp(ks->key[i].name, name) == 0) return &ks->key[i];
    if (ks->n == KEY_MAX) {
        (void)SL_FAIL(err, LIMIT, "key file: over %d keys", KEY_MAX);
        return NULL;
    }
    if (ks->n == ks->cap) {
        int cap = ks->cap ? 2 * ks->cap : 16;
        if (mem_realloc(MEM_MISC, ks->key, (size_t)cap * sizeof *ks->key, &p, err)) return NULL;
        ks->key = p;
        ks->cap = cap;
    }
    memset(&ks->key[ks->n], 0, sizeof *ks->key);
    return &ks->key[ks->n++];
}

/* Into ks, which holds the keys so far. */
static sl_status merge(struct api_keys *ks, char *text, sl_err *err)
{
    uint8_t id[NET_SHA256_BYTES];
    int no = 0;
    for (int i = 0; i < ks->n; i++)
        ks->key[i].alive = false;
    for (char *line = text, *next; line; line = next) {
        struct key k;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *hash = strchr(line, '#');
        if (hash) *hash = 0;
        SL_TRY(parse_line(line, ++no, &k, err));
        if (!k.alive) continue;
        struct key *s = slot(ks, k.name, err);
        if (!s) return err ? err->code : SL_NOMEM;
        if (s->alive) return SL_FAIL(err, FORMAT, "key file: line %d: the name is there twice", no);
        memcpy(s->name, k.name, sizeof s->name);
        memcpy(s->hash, k.hash, sizeof s->hash);
        s->alive = true;
        s->admin = k.admin;
        s->max = k.max;
        net_sha256(s->name, strlen(s->name), id);
        SL_TRY(net_quota_row(ks->quota, id, (int)(s - ks->key), &s->row, err));
    }
    return SL_OK;
}

static sl_status open_keys(api *a, sl_err *err)
{
    void *p = NULL;
    net_quota *own = NULL;
    if (!a->o.quota) SL_TRY(net_quota_open(NULL, &own, err));
    sl_status st = mem_alloc_array(MEM_MISC, 1, sizeof *a->keys, &p, err);
    if (st) {
        net_quota_close(own);
        return st;
    }
    a->keys = p;
    a->keys->own = own;
    a->keys->quota = own ? own : a->o.quota;
    return SL_OK;
}

sl_status api_key_load(api *a, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    struct api_keys next = {0};
    void *p = NULL;
    if (!a->o.key_file) return SL_OK;
    SL_TRY(a->o.read_file(a->o.key_file, FILE_MAX_BYTES, &text, &n, err));
    net_lock_take(a->lock);
    sl_status st = a->keys ? SL_OK : open_keys(a, err);
    if (!st) next.quota = a->keys->quota, next.own = a->keys->own;
    if (!st && a->keys->n) { /* work on a copy: a bad file changes nothing */
        st = mem_alloc_array(MEM_MISC, (size_t)a->keys->n, sizeof *next.key, &p, err);
        next.key = p;
        next.n = next.cap = a->keys->n;
        if (!st) memcpy(next.key, a->keys->key, (size_t)next.n * sizeof *next.key);
    }
    if (!st) st = merge(&next, text, err);
    if (!st) {
        mem_free(a->keys->key);
        *a->keys = next;
    } else
        mem_free(next.key);
    net_lock_give(a->lock);
    mem_free(text);
    return st;
}

void api_key_close(api *a)
{
    if (!a->keys) return;
    net_quota_close(a->keys->own);
    mem_free(a->keys->key);
    mem_free(a->keys);
    a->keys = NULL;
}

/* The key that r brings: Authorization: Bearer KEY, or x-api-key as Anthropic's clients do; "" =
 * none. */
static const char *given_key(struct net_req *r)
{
    const char *auth = net_req_header(r, "Authorization"), *own = net_req_header(r, "x-api-key");
    if (!own) own = net_req_header(r, "api-key"); /* Azure's */
    if (auth && strncasecmp(auth, "Bearer ", 7) == 0) return auth + 7;
    return own ? own : "";
}

/* Slot of a key; -1 = none. The time depends on its length only. */
static int find(const struct api_keys *ks, const char *given)
{
    uint8_t h[NET_SHA256_BYTES];
    int found = -1;
    net_sha256(given, strlen(given), h);
    for (int i = 0; i < ks->n; i++)
        if (net_equal(ks->key[i].hash, h, sizeof h) && ks->key[i].alive) found = i;
    return *given ? found : -1;
}

bool api_key_check(api *a, struct net_req *r)
{
    if (!a->o.key_file) return true;
    const char *given = given_key(r);
    net_lock_take(a->lock);
    r->key = find(a->keys, given);
    net_lock_give(a->lock);
    return r->key >= 0;
}

bool api_key_admin(api *a, const struct net_req *r)
{
    if (!a->o.key_file) return true;
    net_lock_take(a->lock);
    bool yes = r->key >= 0 && a->keys->key[r->key].admin;
    net_lock_give(a->lock);
    return yes;
}

const char *api_key_admit(api *a, struct net_req *r, int *wait_s)
{
    static const char *const why[] = {
        [NET_QUOTA_PARALLEL] = "this key's requests at once are at their limit",
        [NET_QUOTA_REQUEST] = "this key's requests per minute are at their limit",
        [NET_QUOTA_TOKEN] = "this key's tokens per minute are at their limit"};
    if (r->key < 0) return NULL;
    net_lock_take(a->lock);
    const struct key *k = &a->keys->key[r->key];
    enum net_quota_full full =
        net_quota_take(a->keys->quota, k->row, &k->max, clock_now_ns(), wait_s);
    net_lock_give(a->lock);
    return why[full];
}

void api_key_done(api *a, const struct net_req *r, int64_t n_prompt, int64_t n_answer)
{
    if (r->key < 0) return;
    net_lock_take(a->lock);
    struct key *k = &a->keys->key[r->key];
    struct api_usage *u[] = {&k->total, &k->unsaved};
    net_quota_give(a->keys->quota, k->row, n_prompt + n_answer, clock_now_ns());
    for (int i = 0; i < 2; i++) {
        u[i]->n_request++;
        u[i]->n_prompt += n_prompt;
        u[i]->n_answer += n_answer;
    }
    net_lock_give(a->lock);
}

void api_key_name(api *a, int slot_no, char out[64])
{
    out[0] = 0;
    if (slot_no < 0) return;
    net_lock_take(a->lock);
    snprintf(out, 64, "%s", a->keys->key[slot_no].name);
    net_lock_give(a->lock);
}

bool api_key_take_usage(api *a, int slot_no, char name[64], struct api_usage *out)
{
    bool there = false;
    net_lock_take(a->lock);
    if (a->keys && slot_no < a->keys->n) {
        struct key *k = &a->keys->key[slot_no];
        there = true;
        snprintf(name, 64, "%s", k->name);
        *out = k->unsaved;
        memset(&k->unsaved, 0, sizeof k->unsaved);
    }
    net_lock_give(a->lock);
    return there;
}
