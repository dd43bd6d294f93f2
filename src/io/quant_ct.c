/* SPDX-License-Identifier: Apache-2.0 */
/* compressed-tensors: config_groups say how the modules that their targets name are stored;
 * `ignore` names those that are not quantised. A target is a class ("Linear": every matrix), a
 * module's name, or "re:" and an expression that must match from the name's start. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/io_internal.h"
#include "text/regex.h"

#define MAX_GROUPS 64
#define MAX_TARGETS 4096

enum ct_format { CT_DENSE, CT_PACK, CT_INT, CT_FLOAT, CT_NAIVE, CT_NVFP4, CT_MXFP4, CT_N_FORMAT };
static const char *const format_name[CT_N_FORMAT] = {
    "dense",           "pack-quantized",       "int-quantized",       "float-quantized",
    "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"};
static const char format_list[] =
    "pack-, int-, float-, naive-quantized, nvfp4-, mxfp4-pack-quantized are";

struct ct_target {
    const char *text;
    text_regex *re; /* NULL: text is a name */
};
struct ct_list {
    struct ct_target *target;
    int n;
};
struct ct_group {
    const char *name;
    enum ct_format format;
    struct ct_list targets;
    int bits, block_rows, block_cols; /* blocks: 0 = none */
    int64_t size;                     /* columns of a group; -1 = all */
    bool is_float, symmetric, ordered; /* ordered: columns belong to groups as weight_g_idx says */
};
struct ct {
    struct ct_group group[MAX_GROUPS];
    int n_group;
    struct ct_list ignore;
    text_match *match;
};

static void ct_close(void *own)
{
    struct ct *c = own;
    for (int i = -1; i < c->n_group; i++) {
        const struct ct_list *l = i < 0 ? &c->ignore : &c->group[i].targets;
        for (int k = 0; k < l->n; k++)
            text_regex_close(l->target[k].re);
    }
    text_match_close(c->match);
}

/* ---- configuration ---- */
#define CT_FAIL(err, m, code, fmt, ...)                                                            \
    SL_FAIL(err, code, "%s: %s: " fmt, io_short((m)->path), (m)->quant_file, __VA_ARGS__)

static sl_status read_list(io_model *m, const struct json *a, const char *what, struct ct_list *l,
                           sl_err *err)
{
    void *p = NULL;
    if (!a || a->kind == JSON_NULL_K) return SL_OK;
    if (a->kind != JSON_ARRAY_K || a->n > MAX_TARGETS)
        return CT_FAIL(err, m, FORMAT, "%s is no list of at most %d names", what, MAX_TARGETS);
    SL_TRY(mem_arena_array(&m->arena, a->n ? a->n : 1, sizeof *l->target, &p, err));
    l->target = p;
    for (const struct json *v = a->n ? a->item[0] : NULL; v; v = v->next) {
        struct ct_target *t = &l->target[l->n];
        if (v->kind != JSON_STR_K)
            return CT_FAIL(err, m, FORMAT, "%s has something that is no name", what);
        t->text = v->s;
        l->n++;
        if (strncmp(v->s, "re:", 3) != 0) continue;
        sl_status st = text_regex_open(MEM_MISC, v->s + 3, v->n - 3, &t->re, err);
        if (st) status_prefix(err, "%s: %s: %s", io_short(m->path), m->quant_file, what);
        SL_TRY(st);
    }
    return SL_OK;
}

static sl_status read_format(const io_model *m, const char *text, enum ct_format *out, sl_err *err)
{
    for (int i = 0; i < CT_N_FORMAT; i++)
        if (strcmp(text, format_name[i]) == 0) {
            *out = (enum ct_format)i;
            return SL_OK;
        }
    return CT_FAIL(err, m, UNSUPPORTED, "compressed-tensors format \"%.40s\" is not read (%s)",
                   text, format_list);
}

/* [rows, columns], or "128x128" in older files. */
static sl_status read_block(const io_model *m, const struct json *w, struct ct_group *g,
                            sl_err *err)
{
    const struct json *b = text_json_get(w, "block_structure");
    char end;
    if (b && b->kind == JSON_STR_K &&
        sscanf(b->s, "%5dx%5d%c", &g->block_rows, &g->block_cols, &end) == 2 && g->block_rows > 0 &&
        g->block_cols > 0)
        return SL_OK;
    if (!b || b->kind != JSON_ARRAY_K || b->n != 2 || b->item[0]->kind != JSON_INT_K ||
        b->item[1]->kind != JSON_INT_K || b->item[0]->i < 1 || b->item[1]->i < 1 ||
        b->item[0]->i > 65536 || b->item[1]->i > 65536)
        return CT_FAIL(err, m, FORMAT, "%s: block_structure is not [rows, columns]", g->name);
    g->block_rows = (int)b->item[0]->i;
    g->block_cols = (int)b->item[1]->i;
    return SL_OK;
}

/* actorder: "group", or its older names; "weight" and "static" leave the columns where they are. */
static bool has_order(const struct json *o)
{
    if (!o || o->kind != JSON_STR_K) return o && o->kind == JSON_BOOL_K && o->b;
    return strcasecmp(o->s, "group") == 0 || strcasecmp(o->s, "dynamic") == 0;
}

static sl_status read_weights(const io_model *m, const struct json *w, struct ct_group *g,
                              sl_err *err)
{
    const char *type = NULL, *strategy = NULL;
    int64_t bits = 0;
    if (!w || w->kind != JSON_OBJECT_K)
        return CT_FAIL(err, m, FORMAT, "%s.weights is not an object", g->name);
    SL_TRY(io_quant_int(m, w, "num_bits", 8, &bits, err));
    SL_TRY(io_quant_int(m, w, "group_size", -1, &g->size, err));
    SL_TRY(text_json_str(w, "type", "int", &type, err));
    SL_TRY(text_json_str(w, "strategy", g->size > 0 ? "group" : "channel", &strategy, err));
    SL_TRY(text_json_bool(w, "symmetric", true, &g->symmetric, err));
    g->ordered = has_order(text_json_get(w, "actorder"));
    g->bits = bits == 4 || bits == 8 ? (int)bits : 0;
    g->is_float = strcasecmp(type, "float") == 0;
    if (!g->bits || (!g->is_float && strcasecmp(type, "int") != 0))
        return CT_FAIL(err, m, UNSUPPORTED,
                       "%s: weights of type %.20s with %lld bits are not read (4 and 8 are)",
                       g->name, type, (long long)bits);
    if (strcasecmp(strategy, "block") == 0) return read_block(m, w, g, err);
    if (strcasecmp(strategy, "channel") == 0 || strcasecmp(strategy, "tensor") == 0) {
        g->size = -1;
    } else if (strcasecmp(strategy, "group") != 0 && strcasecmp(strategy, "tensor_group") != 0) {
        return CT_FAIL(err, m, UNSUPPORTED, "%s: strategy \"%.30s\" is not read", g->name,
                       strategy);
    } else if (g->size < 1 || g->size > INT32_MAX) {
        return CT_FAIL(err, m, FORMAT, "%s: group_size is %lld", g->name, (long long)g->size);
    }
    return SL_OK;
}

/* Do bits and type fit the format? */
static sl_status check_group(const io_model *m, const struct ct_group *g, sl_err *err)
{
    bool is_float = g->format == CT_FLOAT || g->format == CT_NVFP4 || g->format == CT_MXFP4;
    bool four = g->format == CT_NVFP4 || g->format == CT_MXFP4;
    if (g->format == CT_DENSE) return SL_OK;
    if ((g->format != CT_NAIVE && g->is_float != is_float) ||
        (g->is_float && (g->bits == 4) != four))
        return CT_FAIL(err, m, UNSUPPORTED, "%s: %s with %s of %d bits is not read", g->name,
                       format_name[g->format], g->is_float ? "floats" : "integers", g->bits);
    if (four && g->size != (g->format == CT_NVFP4 ? 16 : 32))
        return CT_FAIL(err, m, UNSUPPORTED, "%s: %s with group_size %lld is not read", g->name,
                       format_name[g->format], (long long)g->size);
    if (g->block_rows && !g->is_float)
        return CT_FAIL(err, m, UNSUPPORTED, "%s: integers with blocks of scales are not read",
                       g->name);
    return SL_OK;
}

static sl_status refuse_extras(const io_model *m, sl_err *err)
{
    const struct json *t = text_json_get(m->quant, "transform_config");
    const struct json *s = text_json_get(m->quant, "sparsity_config");
    const char *format = NULL;
    if (t && t->kind == JSON_OBJECT_K && t->n > 0)
        return CT_FAIL(err, m, UNSUPPORTED, "%s is not read",
                       "compressed-tensors with a transform_config");
    if (!s || s->kind != JSON_OBJECT_K) return SL_OK;
    SL_TRY(text_json_str(s, "format", "dense", &format, err));
    if (strcmp(format, "dense") != 0)
        return CT_FAIL(err, m, UNSUPPORTED,
                       "compressed-tensors sparsity format \"%.40s\" is not read (dense is)",
                       format);
    return SL_OK;
}

static sl_status read_group(io_model *m, const struct json *o, const char *format,
                            struct ct_group *g, sl_err *err)
{
    const struct json *w = text_json_get(o, "weights");
    const char *own = NULL;
    g->name = o->key;
    if (o->kind != JSON_OBJECT_K) return CT_FAIL(err, m, FORMAT, "%s is not an object", g->name);
    bool none = !w || w->kind == JSON_NULL_K; /* of activations: names no matrix */
    SL_TRY(text_json_str(o, "format", NULL, &own, err));
    bool mixed = !own && strcmp(format, "mixed-precision") == 0;
    if (mixed && !none) return CT_FAIL(err, m, FORMAT, "%s has no format of its own", g->name);
    if (!mixed) SL_TRY(read_format(m, own ? own : format, &g->format, err));
    if (none) return SL_OK;
    SL_TRY(read_list(m, text_json_get(o, "targets"), g->name, &g->targets, err));
    SL_TRY(read_weights(m, w, g, err));
    return check_group(m, g, err);
}

sl_status io_ct_prepare(io_model *m, sl_err *err)
{
    const struct json *groups = text_json_get(m->quant, "config_groups");
    const char *format = NULL;
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof(struct ct), &p, err));
    struct ct *c = p;
    m->quant_own = c;
    m->quant_close = ct_close;
    SL_TRY(text_match_open(MEM_MISC, &c->match, err));
    SL_TRY(text_json_str(m->quant, "format", "dense", &format, err));
    SL_TRY(refuse_extras(m, err));
    SL_TRY(read_list(m, text_json_get(m->quant, "ignore"), "ignore", &c->ignore, err));
    if (!groups || groups->kind != JSON_OBJECT_K || groups->n > MAX_GROUPS)
        return CT_FAIL(err, m, FORMAT, "config_groups is no object of at most %d groups",
                       MAX_GROUPS);
    for (const struct json *o = groups->n ? groups->child : NULL; o; o = o->next)
        SL_TRY(read_group(m, o, format, &c->group[c->n_group++], err));
    return io_f8_scales(m, "_scale", err);
}

/* ---- which group ---- */
/* 2: by its name, 1: by its class, 0: not. */
static sl_status list_has(const struct ct *c, const struct ct_list *l, const char *p, size_t n,
                          int *out, sl_err *err)
{
    *out = 0;
    for (int i = 0; i < l->n && *out < 2; i++) {
        const struct ct_target *t = &l->target[i];
        struct text_hit hit = {0};
        if (t->re) {
            SL_TRY(text_regex_find(t->re, c->match, (struct text_subject){p, n, 0}, &hit, err));
            if (hit.found && hit.begin == 0) *out = 2;
        } else if (strlen(t->text) == n && memcmp(t->text, p, n) == 0) {
            *out = 2;
        } else if (strcasecmp(t->text, "Linear") == 0) {
            *out = 1;
        }
    }
    return SL_OK;
}

/* The group of a module, NULL where none names it or `ignore` does. */
static sl_status group_of(const struct io_want *q, const struct ct *c, const struct ct_group **out,
                          sl_err *err)
{
    int best = 0, has;
    *out = NULL;
    SL_TRY(list_has(c, &c->ignore, q->name, (size_t)q->n_module, &has, err));
    if (has) return SL_OK;
    for (int i = 0; i < c->n_group; i++) {
        SL_TRY(list_has(c, &c->group[i].targets, q->name, (size_t)q->n_module, &has, err));
        if (has <= best) continue;
        best = has;
        *out = &c->group[i];
    }
    return SL_OK;
}

/* ---- readers ---- */
static sl_status want_2d(const struct io_want *q, const struct tensor *t, sl_err *err)
{
    if (t->n_dim == 2) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.90s has %d dimensions, not 2", io_short(q->m->path),
                   t->name, t->n_dim);
}

/* weight_shape: [rows, columns], which the padded codes do not say. */
static sl_status read_shape(const struct io_want *q, const struct tensor *t, int bits,
                            int64_t shape[2], sl_err *err)
{
    const struct tensor *s = NULL;
    SL_TRY(io_need(q, "weight_shape", &s, err));
    if (s->type != TENSOR_I32) SL_TRY(io_want_type(q, s, TENSOR_I64, err));
    SL_TRY(io_want_shape(q, s, 2, -1, err));
    for (int i = 0; i < 2; i++)
        shape[i] = tensor_whole(s, i);
    int per = 32 / bits;
    if (shape[0] == t->shape[0] && shape[1] > 0 && shape[1] <= INT32_MAX &&
        (shape[1] + per - 1) / per == t->shape[1])
        return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: %.70s says [%lld, %lld], but %.70s has [%lld, %lld] words",
                   io_short(q->m->path), s->name, (long long)shape[0], (long long)shape[1], t->name,
                   (long long)t->shape[0], (long long)t->shape[1]);
}

/* Old files have zero points of symmetric weights too: all zero, or 2^(bits-1) where they are
 * packed. */
static sl_status want_none(const struct io_want *q, const struct ct_group *g, sl_err *err)
{
    const struct tensor *z = io_part_of(q, "weight_zero_point");
    uint8_t none = z && z->type == TENSOR_I32 ? (g->bits == 4 ? 0x88 : 0x80) : 0, zero = 0, mid = 0;
    for (uint64_t i = 0; z && i < z->n_bytes; i++) {
        zero |= ((const uint8_t *)z->data)[i];
        mid |= ((const uint8_t *)z->data)[i] ^ none;
    }
    if (!zero || !mid) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.80s is not zero, but %s: %.40s is symmetric",
                   io_short(q->m->path), z->name, q->m->quant_file, g->name);
}

/* Zero points of i8: of each row and group, or one where there is one scale. */
static sl_status plain_zeros(const struct io_want *q, const struct tensor *z, struct weight *w,
                             sl_err *err)
{
    struct weight_group *g = &w->group;
    bool one = g->n_group == 1 && g->scale.ld_row == 0 && tensor_count(z) == 1;
    SL_TRY(io_want_type(q, z, TENSOR_I8, err));
    if (!one) SL_TRY(io_want_shape(q, z, w->rows, g->n_group, err));
    g->zeros = one ? WEIGHT_ZERO_ONE : WEIGHT_ZERO_I8;
    for (uint64_t i = 0; weight_bits(w) == 4 && i < z->n_bytes; i++)
        if ((((const uint8_t *)z->data)[i] + 8u) & 0xf0u)
            return SL_FAIL(err, FORMAT, "%s: tensor %.90s has a number outside -8 .. 7",
                           io_short(q->m->path), z->name);
    return SL_OK;
}

/* Scales, zero points (packed along the rows, or plain i8, beside packed codes too in older files)
 * and the order of columns. */
static sl_status read_groups(const struct io_want *q, const struct ct_group *g, bool packed,
                             struct weight *w, sl_err *err)
{
    const struct tensor *s = NULL, *z = NULL, *order = io_part_of(q, "weight_g_idx");
    SL_TRY(io_need(q, "weight_scale", &s, err));
    SL_TRY(io_group_scale(q, s, w, &w->group.scale, err));
    if (g->ordered && w->group.n_group > 1) SL_TRY(io_need(q, "weight_g_idx", &order, err));
    if (order && g->size > 0) SL_TRY(io_group_order(q, order, w, err));
    if (g->symmetric) return want_none(q, g, err);
    SL_TRY(io_need(q, "weight_zero_point", &z, err));
    w->group.zero = z->data;
    if (!packed || z->type == TENSOR_I8) return plain_zeros(q, z, w, err);
    int64_t per = 32 / g->bits;
    SL_TRY(io_want_type(q, z, TENSOR_I32, err));
    SL_TRY(io_want_shape(q, z, (w->rows + per - 1) / per, w->group.n_group, err));
    w->group.zeros = g->bits == 4 ? WEIGHT_ZERO_NIB_ROWS : WEIGHT_ZERO_U8_ROWS;
    return SL_OK;
}

static sl_status read_packed(const struct io_want *q, const struct ct_group *g,
                             const struct tensor *t, struct weight *w, sl_err *err)
{
    int64_t shape[3] = {0, 0, g->size};
    SL_TRY(io_want_type(q, t, TENSOR_I32, err));
    SL_TRY(read_shape(q, t, g->bits, shape, err));
    SL_TRY(io_group_init(q, t, g->bits == 4 ? WEIGHT_NIB : WEIGHT_U8, shape, w, err));
    return read_groups(q, g, true, w, err);
}

static sl_status read_fp4(const struct io_want *q, const struct ct_group *g, const struct tensor *t,
                          struct weight *w, sl_err *err)
{
    const struct tensor *s = NULL, *global = NULL;
    int64_t shape[3] = {t->shape[0], t->shape[1] * 2, g->size};
    float f = 1.0f;
    SL_TRY(io_want_type(q, t, TENSOR_U8, err));
    SL_TRY(io_group_init(q, t, WEIGHT_E2M1, shape, w, err));
    SL_TRY(io_need(q, "weight_scale", &s, err));
    if (g->format == CT_NVFP4 || s->type != TENSOR_F8_E8M0)
        SL_TRY(io_want_type(q, s, g->format == CT_NVFP4 ? TENSOR_F8_E4M3 : TENSOR_U8, err));
    SL_TRY(io_want_shape(q, s, w->rows, w->group.n_group, err));
    w->group.scale = (struct weight_scale){s->data, s->type, w->group.n_group, 1};
    if (g->format == CT_MXFP4) return SL_OK;
    SL_TRY(io_need(q, "weight_global_scale", &global, err));
    SL_TRY(io_want_type(q, global, TENSOR_F32, err));
    if (tensor_count(global) != 1) SL_TRY(io_want_shape(q, global, 1, -1, err));
    memcpy(&f, global->data, 4);
    if (!(f > 0.0f) || !isfinite(f))
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s is %g, expected a number over 0",
                       io_short(q->m->path), global->name, (double)f);
    w->tensor_scale = 1.0f / f;
    return SL_OK;
}

/* int-, float- and naive-quantized: MODULE.weight in I8 or F8_E4M3. */
static sl_status read_plain(const struct io_want *q, const struct ct_group *g, struct weight *w,
                            sl_err *err)
{
    const struct tensor *t = q->t, *s = NULL;
    SL_TRY(io_want_type(q, t, g->is_float ? TENSOR_F8_E4M3 : TENSOR_I8, err));
    if (!g->is_float) {
        int64_t shape[3] = {t->shape[0], t->shape[1], g->size};
        SL_TRY(io_group_init(q, t, g->bits == 4 ? WEIGHT_I4 : WEIGHT_I8, shape, w, err));
        return read_groups(q, g, false, w, err);
    }
    SL_TRY(io_need(q, "weight_scale", &s, err));
    if (g->size > 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: tensor %.90s: FP8 with scales of groups is not read (tensor, channel "
                       "and block are)",
                       io_short(q->m->path), t->name);
    return io_f8_weight(q, s, g->block_rows, g->block_cols, w, err);
}

sl_status io_ct_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct ct *c = q->m->quant_own;
    const struct ct_group *g = NULL;
    if (!io_ends_with(q->name, ".weight")) return SL_OK;
    const struct tensor *packed = io_part_of(q, "weight_packed"), *t = packed ? packed : q->t;
    if (!t || (t == q->t && tensor_dtype_is_weight(t->type) && t->type != TENSOR_F8_E4M3))
        return SL_OK;
    *done = true;
    if (packed && q->t)
        return SL_FAIL(err, FORMAT, "%s: %.70s is there twice, plain and as %.70s",
                       io_short(q->m->path), q->name, packed->name);
    SL_TRY(want_2d(q, t, err));
    SL_TRY(group_of(q, c, &g, err));
    if (!g)
        return SL_FAIL(
            err, FORMAT, "%s: tensor %.80s is %s, but %s: quantization_config does not quantise it",
            io_short(q->m->path), t->name, tensor_dtype(t->type)->text, q->m->quant_file);
    bool want_packed = g->format == CT_PACK || g->format == CT_NVFP4 || g->format == CT_MXFP4;
    if (g->format == CT_DENSE || want_packed != (packed != NULL))
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s does not fit %s, the format of %.40s",
                       io_short(q->m->path), t->name, format_name[g->format], g->name);
    if (g->format == CT_PACK) return read_packed(q, g, t, w, err);
    return want_packed ? read_fp4(q, g, t, w, err) : read_plain(q, g, w, err);
}
