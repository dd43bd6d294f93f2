/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a model lies on which device, and how much of it. */
#include "model/model_internal.h"

const char *model_part_name(enum model_part p)
{
    static const char *const names[] = {
#define X(name, text) text,
        MODEL_PART_LIST(X)
#undef X
    };
    return names[p];
}

void model_place_open(struct model *m, dev *d)
{
    m->place = m->opts.place ? *m->opts.place : (struct model_place){.d = {d}, .n_dev = 1};
    m->opts.place = NULL; /* the caller's */
    m->d = m->place.d[m->place.on[MODEL_ATTN]];
    ASSERT(m->d == d);
    for (int i = 0; i < m->place.n_dev; i++)
        m->side[i].d = m->place.d[i];
}

bool model_has_part(const struct arch_cfg *c, int il, enum model_part p)
{
    bool moe = c->layer[il].ffn == ARCH_MOE;
    switch (p) {
    case MODEL_ATTN:
        return true;
    case MODEL_DENSE:
        return !moe || c->sandwich;
    case MODEL_SHARED:
        return moe && c->n_shared > 0;
    case MODEL_ROUTER:
    case MODEL_EXPERTS:
        return moe;
    default:
        return false;
    }
}

bool model_ffn_apart(const struct model *m, int il)
{
    const struct side *home = model_side_in(m, il, MODEL_ATTN);
    for (int p = 0; p < MODEL_N_PART; p++)
        if (p != MODEL_ATTN && model_has_part(&m->cfg, il, (enum model_part)p) &&
            model_side_in(m, il, (enum model_part)p) != home)
            return true;
    return false;
}

enum model_part model_part_of(enum arch_role role)
{
    switch (role) {
    case ROLE_MTP_EMBED:
        return MODEL_EMBED;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return MODEL_DENSE;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
    case ROLE_SHEXP_GATE:
        return MODEL_SHARED;
    case ROLE_ROUTER:
    case ROLE_ROUTER_BIAS:
    case ROLE_EXPERT_OF:
        return MODEL_ROUTER;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return MODEL_EXPERTS;
    case ROLE_MTP_HEAD:
        return MODEL_HEAD;
    default:
        return MODEL_ATTN;
    }
}

enum model_part model_part_of_name(const struct arch_cfg *c, const char *name, int *layer)
{
    static const struct arch_naming gguf = {.kind = IO_GGUF}; /* packed files spell some so */
    struct arch_name n;
    arch_name_parse(&c->naming, name, &n);
    if (n.role < 0 && n.global < 0) arch_name_parse(&gguf, name, &n);
    *layer = n.layer;
    if (n.global == GLOBAL_EMBED) return MODEL_EMBED;
    if (n.global == GLOBAL_HEAD) return MODEL_HEAD;
    return n.role < 0 ? MODEL_ATTN : model_part_of((enum arch_role)n.role);
}

/* The part that a tensor belongs to, its layer (-1: none), and the device *at of both. */
static enum model_part place_of(const struct model_place *p, const struct arch_cfg *c,
                                const struct tensor *t, int *il, int *at)
{
    enum model_part part = model_part_of_name(c, t->name, il);
    bool in = p->in_layer && *il >= 0 && *il < c->n_layer + c->n_mtp;
    *at = in ? p->in_layer[*il * MODEL_N_PART + (int)part] : p->on[part];
    return part;
}

void model_place_bytes(const struct model_placed *w, const io_model *io,
                       int64_t bytes[MODEL_DEV_MAX])
{
    const struct model_place *p = w->p;
    const struct arch_cfg *c = w->c;
    for (int i = 0; i < MODEL_DEV_MAX; i++)
        bytes[i] = 0;
    for (int i = 0; i < io_n_tensor(io); i++) {
        const struct tensor *t = io_tensor(io, i);
        int64_t n = (int64_t)t->n_bytes;
        int il = -1, at;
        enum model_part part = place_of(p, c, t, &il, &at);
        if (w->dims) n = model_slice_bytes(c, w->dims, t->name, n);
        bytes[at] += n;
        if (part == MODEL_EMBED && il < 0 && c->tied_head && p->on[MODEL_HEAD] != at)
            bytes[p->on[MODEL_HEAD]] += n;
    }
}

int64_t model_place_experts(const struct model_place *p, const struct arch_cfg *c,
                            const io_model *io, int i)
{
    int64_t n = 0;
    for (int k = 0; k < io_n_tensor(io); k++) {
        const struct tensor *t = io_tensor(io, k);
        int il = -1, at;
        if (place_of(p, c, t, &il, &at) == MODEL_EXPERTS && at == i) n += (int64_t)t->n_bytes;
    }
    return n;
}

void model_expert_bytes(const struct arch_cfg *c, const io_model *io, int64_t *out)
{
    int n = c->n_layer + c->n_mtp;
    for (int il = 0; il < n; il++)
        out[il] = 0;
    for (int i = 0; i < io_n_tensor(io); i++) {
        const struct tensor *t = io_tensor(io, i);
        int il = -1;
        bool is_one = model_part_of_name(c, t->name, &il) == MODEL_EXPERTS;
        if (is_one && il >= 0 && il < n) out[il] += (int64_t)t->n_bytes;
    }
    for (int il = 0; il < n; il++)
        out[il] /= BASE_MAX(c->n_expert, 1);
}

/* "experts@0-3, experts@8": that part where it lies on device i. */
static void part_text(const struct model_place *p, const struct arch_cfg *c, int i,
                      enum model_part part, struct str *s)
{
    const char *name = model_part_name(part);
    int n = c->n_layer + c->n_mtp, n_has = 0, n_on = 0, from = -1;
    for (int il = 0; il < n; il++) {
        if (!model_has_part(c, il, part)) continue;
        n_has++;
        n_on += model_place_at(p, il, part) == i;
    }
    if (n_on == n_has && n_on) str_puts(s, name);
    for (int il = 0; il <= n && n_on < n_has; il++) {
        bool has = il < n && model_has_part(c, il, part) && model_place_at(p, il, part) == i;
        if (has && from < 0) from = il;
        if (has || from < 0) continue;
        str_printf(s, "%s%s@%d", s->n ? ", " : "", name, from);
        if (il - 1 > from) str_printf(s, "-%d", il - 1);
        from = -1;
    }
}

sl_status model_place_text(const struct model_place *p, const struct arch_cfg *c, int i,
                           struct arena *a, char **out, sl_err *err)
{
    struct str s, one;
    str_init(&s, MEM_MISC, 0);
    str_init(&one, MEM_MISC, 0);
    for (int k = 0; k < MODEL_N_PART; k++) {
        enum model_part part = (enum model_part)k;
        str_clear(&one);
        if (part == MODEL_EMBED || part == MODEL_HEAD) {
            if (p->on[part] == i) str_printf(&one, "%s", model_part_name(part));
        } else {
            part_text(p, c, i, part, &one);
        }
        if (one.n) str_printf(&s, "%s%s", s.n ? ", " : "", str_c(&one));
    }
    str_fini(&one);
    sl_status st = str_status(&s, err);
    if (!st) st = mem_arena_str(a, str_c(&s), s.n, out, err);
    str_fini(&s);
    return st;
}
