/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what a user says of placement: items "WHAT=DEVICE" with semicolons between, of which the
 * last that names a part counts. WHAT: a part, "layers" for all parts of layers, or "blocks" for
 * these without attention; "WHAT@A-B" those of some layers; or "re:REGEX" the parts whose matrices'
 * GGUF names it matches. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"
#include "text/regex.h"

struct placing {
    const struct arch_cfg *c;
    struct arena *a;
    struct model_place *p;
    uint8_t *in; /* [n_layer, MODEL_N_PART] */
    int n_layer;
    const char *item; /* for errors, with its length */
    int n;
};

/* One item: "WHAT" and its device. */
struct item {
    const char *what;
    int n_what;
    uint8_t dev;
};

static bool is_of_layer(enum model_part p)
{
    return p != MODEL_EMBED && p != MODEL_HEAD;
}

static void set_all(struct placing *g, enum model_part part, uint8_t to)
{
    g->p->on[part] = to;
    for (int il = 0; il < g->n_layer; il++)
        g->in[il * MODEL_N_PART + (int)part] = to;
}

/* The place of a device of that name, which it gets where it is new. */
static sl_status device(struct placing *g, const char *name, size_t n, uint8_t *out, sl_err *err)
{
    struct model_place *p = g->p;
    for (int i = 0; i < p->n_dev; i++)
        if (strlen(p->name[i]) == n && strncmp(p->name[i], name, n) == 0) {
            *out = (uint8_t)i;
            return SL_OK;
        }
    if (p->n_dev == MODEL_DEV_MAX)
        return SL_FAIL(err, REQUEST, "place: '%.*s': more than %d devices", g->n, g->item,
                       MODEL_DEV_MAX);
    *out = (uint8_t)p->n_dev;
    return mem_arena_str(g->a, name, n, &p->name[p->n_dev++], err);
}

/* ---- "PART", "PART@A-B" ---- */

static sl_status part_named(const struct placing *g, const char *name, int n, enum model_part *out,
                            sl_err *err)
{
    for (int i = 0; i < MODEL_N_PART; i++) {
        const char *is = model_part_name((enum model_part)i);
        if ((int)strlen(is) != n || strncmp(is, name, (size_t)n) != 0) continue;
        *out = (enum model_part)i;
        return SL_OK;
    }
    return SL_FAIL(err, REQUEST,
                   "place: '%.*s': '%.*s' is no part of a model (there are: embed, attn, dense, "
                   "shared, router, experts, head; layers are all of a layer's, blocks all but "
                   "attn)",
                   g->n, g->item, BASE_MIN(n, 40), name);
}

/* A whole number at *s, which moves past it; -1 = none is there. */
static int number(const char **s, const char *end)
{
    int v = 0;
    if (*s == end || !isdigit((unsigned char)**s)) return -1;
    for (; *s < end && isdigit((unsigned char)**s); (*s)++)
        v = v < INT_MAX / 16 ? v * 10 + (**s - '0') : v;
    return v;
}

/* "A" or "A-B" in s .. end. */
static sl_status layers(const struct placing *g, const char *s, const char *end, int range[2],
                        sl_err *err)
{
    range[0] = range[1] = number(&s, end);
    if (s < end && *s == '-') {
        s++;
        range[1] = number(&s, end);
    }
    if (s < end || range[0] < 0 || range[1] < range[0])
        return SL_FAIL(err, REQUEST,
                       "place: '%.*s': layers are named as in experts@3 or "
                       "experts@0-15",
                       g->n, g->item);
    if (range[1] >= g->n_layer)
        return SL_FAIL(err, REQUEST, "place: '%.*s': there is no layer %d: the last one is %d",
                       g->n, g->item, range[1], g->n_layer - 1);
    return SL_OK;
}

/* Those layers' part, as far as they have it; how many. Attention of all layers is where a pass
 * begins and ends, too. */
static int set_layers(struct placing *g, const int range[2], enum model_part part, uint8_t to)
{
    int n = 0;
    if (part == MODEL_ATTN && range[0] == 0 && range[1] == g->n_layer - 1) g->p->on[part] = to;
    for (int il = range[0]; il <= range[1]; il++)
        if (model_has_part(g->c, il, part)) {
            g->in[il * MODEL_N_PART + (int)part] = to;
            n++;
        }
    return n;
}

/* Several parts of a layer. */
static const struct group {
    const char *name;
    enum model_part first; /* they and all that follow */
} groups[] = {{"layers", MODEL_ATTN}, {"blocks", MODEL_DENSE}};

static const struct group *group_named(const char *name, int n)
{
    for (int i = 0; i < BASE_COUNT_OF(groups); i++)
        if ((int)strlen(groups[i].name) == n && strncmp(groups[i].name, name, (size_t)n) == 0)
            return &groups[i];
    return NULL;
}

static sl_status by_part(struct placing *g, const struct item *it, sl_err *err)
{
    const char *at = memchr(it->what, '@', (size_t)it->n_what), *end = it->what + it->n_what;
    int range[2] = {0, g->n_layer - 1}, n_name = (int)((at ? at : end) - it->what);
    const struct group *several = group_named(it->what, n_name);
    enum model_part part = MODEL_EMBED;
    if (!several) SL_TRY(part_named(g, it->what, n_name, &part, err));
    if (at) SL_TRY(layers(g, at + 1, end, range, err));
    for (int i = several ? (int)several->first : MODEL_N_PART; i < MODEL_N_PART; i++)
        if (is_of_layer((enum model_part)i)) set_layers(g, range, (enum model_part)i, it->dev);
    if (several) return SL_OK;
    if (!is_of_layer(part)) {
        if (at)
            return SL_FAIL(err, REQUEST, "place: '%.*s': %s lies on one device as a whole", g->n,
                           g->item, model_part_name(part));
        set_all(g, part, it->dev);
        return SL_OK;
    }
    if (set_layers(g, range, part, it->dev)) return SL_OK;
    return SL_FAIL(err, REQUEST, "place: '%.*s': %s of this model %s '%s'", g->n, g->item,
                   at ? "these layers" : "no layer", at ? "have no" : "has", model_part_name(part));
}

/* ---- "re:REGEX" ---- */

struct pattern {
    text_regex *re;
    text_match *m;
};

static sl_status matches(const struct pattern *r, const char *name, bool *found, sl_err *err)
{
    struct text_hit hit = {0};
    sl_status st =
        text_regex_find(r->re, r->m, (struct text_subject){name, strlen(name), 0}, &hit, err);
    *found = hit.found;
    return st;
}

/* A part's matrices in a layer lie together: all of them match, or none. */
static sl_status match_part(struct placing *g, const struct pattern *r, int il,
                            enum model_part part, int *n_yes, sl_err *err)
{
    static const enum arch_role all[] = {
        ROLE_Q,          ROLE_K,        ROLE_V,         ROLE_O,       ROLE_Q_A,
        ROLE_Q_B,        ROLE_KV_A,     ROLE_KV_B,      ROLE_GATE,    ROLE_UP,
        ROLE_DOWN,       ROLE_ROUTER,   ROLE_GATE_EXPS, ROLE_UP_EXPS, ROLE_DOWN_EXPS,
        ROLE_GATE_SHEXP, ROLE_UP_SHEXP, ROLE_DOWN_SHEXP};
    const struct arch_naming by = arch_naming_in(g->c, IO_GGUF);
    char name[128], yes[128] = "", no[128] = "";
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        bool found = false;
        if (model_part_of(all[i]) != part) continue;
        arch_tensor_name(&by, all[i], il, "weight", name, sizeof name);
        SL_TRY(matches(r, name, &found, err));
        memcpy(found ? yes : no, name, sizeof name);
    }
    if (*yes && *no)
        return SL_FAIL(err, REQUEST, "place: '%.*s' matches %.60s but not %.60s: they lie together",
                       g->n, g->item, yes, no);
    *n_yes = *yes != 0;
    return SL_OK;
}

static sl_status match_all(struct placing *g, const struct pattern *r, uint8_t to, sl_err *err)
{
    static const enum model_part global[] = {MODEL_EMBED, MODEL_HEAD};
    const struct arch_naming by = arch_naming_in(g->c, IO_GGUF);
    int n = 0;
    for (int i = 0; i < BASE_COUNT_OF(global); i++) {
        bool found = false;
        SL_TRY(matches(r, arch_global_name(&by, i ? GLOBAL_HEAD : GLOBAL_EMBED), &found, err));
        if (found) set_all(g, global[i], to);
        n += found;
    }
    for (int il = 0; il < g->n_layer; il++)
        for (int p = 0; p < MODEL_N_PART; p++) {
            int yes = 0;
            if (!model_has_part(g->c, il, (enum model_part)p)) continue;
            SL_TRY(match_part(g, r, il, (enum model_part)p, &yes, err));
            if (yes) g->in[il * MODEL_N_PART + p] = to;
            n += yes;
        }
    if (n) return SL_OK;
    return SL_FAIL(err, REQUEST, "place: '%.*s' matches no matrix of this model", g->n, g->item);
}

static sl_status by_pattern(struct placing *g, const struct item *it, sl_err *err)
{
    struct pattern r = {0};
    sl_status st = text_regex_open(MEM_MISC, it->what + 3, (size_t)it->n_what - 3, &r.re, err);
    if (!st) st = text_match_open(MEM_MISC, &r.m, err);
    if (st && st != SL_NOMEM) {
        status_prefix(err, "place: '%.*s'", g->n, g->item);
        if (err) err->code = SL_REQUEST;
        st = SL_REQUEST;
    }
    if (!st) st = match_all(g, &r, it->dev, err);
    text_match_close(r.m);
    text_regex_close(r.re);
    return st;
}

/* Does a device's name begin at s? */
static bool is_device(const char *s, const char *end)
{
    for (int i = 0; dev_name(i); i++) {
        size_t n = strlen(dev_name(i)), left = (size_t)(end - s);
        if (n <= left && strncmp(s, dev_name(i), n) == 0 && (n == left || s[n] == ':')) return true;
    }
    return false;
}

/* The '=' after a pattern: patterns and devices' options may have some of their own. NULL: none. */
static const char *end_of_pattern(const char *s, const char *end)
{
    const char *first = NULL, *eq = NULL;
    for (; s < end; s++) {
        if (*s != '=') continue;
        if (!first) first = s;
        if (is_device(s + 1, end)) eq = s;
    }
    return eq ? eq : first;
}

/* ---- all of it ---- */

/* The item in s .. end, without white space around it. */
static sl_status one_item(struct placing *g, const char *s, const char *end, sl_err *err)
{
    while (s < end && isspace((unsigned char)*s))
        s++;
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    if (s == end) return SL_OK;
    g->item = s;
    g->n = (int)BASE_MIN(end - s, 80);
    bool re = end - s > 3 && strncmp(s, "re:", 3) == 0;
    const char *eq = memchr(s, '=', (size_t)(end - s));
    if (re) eq = end_of_pattern(s, end);
    if (!eq || eq == s || eq + 1 == end)
        return SL_FAIL(err, REQUEST,
                       "place: '%.*s': PART=DEVICE is expected, as in experts=cpu or "
                       "experts@0-15=cpu",
                       g->n, g->item);
    struct item it = {.what = s, .n_what = (int)(eq - s)};
    SL_TRY(device(g, eq + 1, (size_t)(end - eq - 1), &it.dev, err));
    return re ? by_pattern(g, &it, err) : by_part(g, &it, err);
}

/* A pass begins where some layer's attention lies, and that of all MTP layers. */
static sl_status check_attn(struct placing *g, sl_err *err)
{
    uint8_t *home = &g->p->on[MODEL_ATTN];
    int L = g->c->n_layer;
    bool any = false;
    for (int il = 0; il < L; il++)
        any |= g->in[il * MODEL_N_PART + MODEL_ATTN] == *home;
    if (!any) *home = g->in[(L < g->n_layer ? L : 0) * MODEL_N_PART + MODEL_ATTN];
    for (int il = L; il < g->n_layer; il++) {
        int at = g->in[il * MODEL_N_PART + MODEL_ATTN];
        if (at != *home)
            return SL_FAIL(err, REQUEST,
                           "place: attn@%d=%.60s: layer %d is an MTP layer, whose attention lies "
                           "where a pass begins, on %.60s",
                           il, g->p->name[at], il, g->p->name[*home]);
    }
    return SL_OK;
}

/* Number the devices on which something lies, in their order. */
static void drop_unused(struct placing *g)
{
    struct model_place *p = g->p;
    uint8_t to[MODEL_DEV_MAX];
    bool used[MODEL_DEV_MAX] = {false};
    int n = 0;
    used[p->on[MODEL_EMBED]] = used[p->on[MODEL_ATTN]] = used[p->on[MODEL_HEAD]] = true;
    for (int i = 0; i < g->n_layer * MODEL_N_PART; i++)
        if (model_has_part(g->c, i / MODEL_N_PART, (enum model_part)(i % MODEL_N_PART)))
            used[g->in[i]] = true;
    for (int i = 0; i < p->n_dev; i++) {
        to[i] = (uint8_t)n;
        if (used[i]) p->name[n++] = p->name[i];
    }
    for (int i = 0; i < MODEL_N_PART; i++)
        p->on[i] = to[p->on[i]];
    for (int i = 0; i < g->n_layer * MODEL_N_PART; i++)
        g->in[i] = to[g->in[i]];
    p->n_dev = n;
}

sl_status model_place_parse(const char *text, const struct arch_cfg *c, const char *home,
                            struct arena *a, struct model_place *out, sl_err *err)
{
    struct placing g = {.c = c, .a = a, .p = out, .n_layer = c->n_layer + c->n_mtp};
    void *p = NULL;
    *out = (struct model_place){.n_dev = 1};
    SL_TRY(mem_arena_array(a, (size_t)g.n_layer * MODEL_N_PART, 1, &p, err));
    g.in = p;
    memset(g.in, 0, (size_t)g.n_layer * MODEL_N_PART);
    SL_TRY(mem_arena_str(a, home, strlen(home), &out->name[0], err));
    for (const char *s = text; *s;) {
        const char *end = s + strcspn(s, ";");
        SL_TRY(one_item(&g, s, end, err));
        s = *end ? end + 1 : end;
    }
    SL_TRY(check_attn(&g, err));
    drop_unused(&g);
    out->in_layer = g.in;
    return SL_OK;
}

const char *model_place_or_default(const char *text)
{
    if (!text) text = getenv("SL_PLACE");
    return text && *text ? text : NULL;
}
