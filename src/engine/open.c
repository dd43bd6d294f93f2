/* SPDX-License-Identifier: Apache-2.0 */
/* sl_model: what was read from disk. Read-only after it was opened. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "engine/engine_internal.h"
#include "engine/hub.h"
#include "io/mock.h"
#include "os/os.h"
#include "text/utf8.h"

#define TMPL_FILE_MAX ((uint64_t)4 << 20) /* of a template that the user brings */

static sl_status take_template(sl_model *m, struct engine_tmpl *x, const char *src, size_t n,
                               sl_err *err)
{
    SL_TRY(mem_arena_str(&m->arena, src, n, &x->text, err));
    return text_tmpl_open(src, n, &x->t, err);
}

/* The template in a file of the user's, instead of all that the model brings. */
static sl_status file_template(sl_model *m, const char *path, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    SL_TRY(os_read_once(path, TMPL_FILE_MAX, &text, &n, err));
    size_t bom = text_utf8_bom(text, (size_t)n);
    sl_status st = take_template(m, &m->tmpl[0], text + bom, (size_t)n - bom, err);
    if (st && st != SL_NOMEM) status_prefix(err, "%.100s", path);
    mem_free(text);
    return st;
}

static sl_status own_templates(sl_model *m, sl_err *err)
{
    const char *first = NULL, *src = NULL;
    size_t n = 0;
    sl_status st = tok_template_for(m->tok, false, &first, &n, &m->tmpl[0].why);
    if (st && st != SL_NOTFOUND) {
        if (err) *err = m->tmpl[0].why;
        return st;
    }
    if (first) SL_TRY(take_template(m, &m->tmpl[0], first, n, err));
    st = tok_template_for(m->tok, true, &src, &n, err);
    if (st == SL_NOTFOUND || (!st && src == first)) return SL_OK;
    SL_TRY(st);
    st = take_template(m, &m->tmpl[1], src, n, err);
    if (st && st != SL_NOMEM) status_prefix(err, "template tool_use");
    return st;
}

static sl_status read_tokenizer(sl_model *m, const char *template_file, sl_err *err)
{
    sl_status st = tok_open(m->io, &m->tok, &m->tok_err);
    if (st == SL_NOTFOUND || st == SL_UNSUPPORTED)
        return SL_OK; /* token ids still work; text says why not */
    if (st) {
        st = io_name_file(m->io, st, &m->tok_err);
        if (err) *err = m->tok_err;
        return st;
    }
    if (template_file) return file_template(m, template_file, err);
    return io_name_file(m->io, own_templates(m, err), err);
}

/* Ids below n that have no bytes or that the files want never drawn, ids that end a generation, and
 * the longest token. */
static sl_status list_tokens(sl_model *m, int n, sl_err *err)
{
    void *p = NULL;
    int n_tok = m->tok ? tok_n_vocab(m->tok) : n;
    uint64_t h = hash_bytes(&n, sizeof n, 1);
    for (int pass = 0; pass < 2; pass++) {
        m->n_hole = m->n_eog = 0;
        for (int i = 0; m->tok && i < n; i++) {
            int len = 0;
            const char *bytes = i < n_tok ? tok_bytes(m->tok, i, &len) : NULL;
            bool hole = !bytes || tok_is_banned(m->tok, i);
            bool eog = bytes && tok_is_eog(m->tok, i);
            if (pass) h = hash_bytes(bytes, (size_t)len, h + (uint64_t)eog);
            if (pass && hole) m->hole[m->n_hole] = i;
            if (pass && eog) m->eog[m->n_eog] = i;
            m->n_hole += hole;
            m->n_eog += eog;
            if (len > m->max_piece) m->max_piece = len;
        }
        if (pass && m->tok) m->vocab_hash = h;
        if (pass) break;
        SL_TRY(mem_arena_array(&m->arena, (size_t)m->n_hole + 1, sizeof *m->hole, &p, err));
        m->hole = p;
        SL_TRY(mem_arena_array(&m->arena, (size_t)m->n_eog + 1, sizeof *m->eog, &p, err));
        m->eog = p;
    }
    return SL_OK;
}

/* Without a tokenizer: the end tokens that the configurations name. */
static sl_status list_ends(sl_model *m, int n, sl_err *err)
{
    int32_t id[64];
    void *p = NULL;
    int n_id = tok_end_ids(m->io, id, BASE_COUNT_OF(id));
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_id + 1, sizeof *m->eog, &p, err));
    m->eog = p;
    for (int i = 0; i < n_id; i++)
        if (id[i] < n) m->eog[m->n_eog++] = id[i];
    return SL_OK;
}

static sl_status read_name(sl_model *m, const char *path, sl_err *err)
{
    const char *s = NULL;
    uint64_t n = 0;
    if (io_model_kind(m->io) == IO_GGUF &&
        io_meta_str(m->io, "general.name", &s, &n, NULL) == SL_OK && n > 0 && n < 200)
        return mem_arena_str(&m->arena, s, (size_t)n, &m->name, err);
    char hub[200];
    if (engine_hub_name(path, hub, sizeof hub))
        return mem_arena_str(&m->arena, hub, strlen(hub), &m->name, err);
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (len - begin > 7 && strncmp(path + len - 7, ".packed", 7) == 0) len -= 7;
    if (len - begin > 5 && strncmp(path + len - 5, ".gguf", 5) == 0) len -= 5;
    return mem_arena_str(&m->arena, path + begin, len - begin, &m->name, err);
}

/* "mock:NAME" or "mock=TYPE:NAME": the model of that name without its weights. Cut from *name. */
static sl_status cut_mock(const char **name, bool *is_mock, enum tensor_dtype *type, sl_err *err)
{
    const char *s = *name;
    char text[16];
    *type = TENSOR_BF16;
    *is_mock = s && strncmp(s, "mock", 4) == 0 && (s[4] == ':' || s[4] == '=') && strchr(s, ':');
    if (!*is_mock) return SL_OK;
    size_t n = strcspn(s, ":");
    *name = s + n + 1;
    if (n == 4) return SL_OK;
    snprintf(text, sizeof text, "%.*s", (int)BASE_MIN(n - 5, sizeof text - 1), s + 5);
    if (io_mock_type(text, type)) return SL_OK;
    return SL_FAIL(err, REQUEST, "mock: unknown type of weights: %s: " IO_MOCK_TYPES, text);
}

/* Its folder, of which only the configuration and the tokenizer are read. */
static sl_status open_mock(sl_model *m, const char *path, sl_err *err)
{
    char dir[4096];
    const char *base = str_base(path);
    const struct json *config;
    snprintf(dir, sizeof dir, "%s", path);
    if (strcmp(base, "config.json") == 0)
        snprintf(dir, sizeof dir, "%.*s", base == path ? 1 : (int)(base - path),
                 base == path ? "." : path);
    if (os_path_kind(dir) != OS_DIR)
        return SL_FAIL(err, REQUEST,
                       "mock: %.160s: a folder with config.json is needed, or that file", path);
    SL_TRY(io_open(dir, true, &m->io, err));
    return io_need_config(m->io, &config, err);
}

static sl_status check_mock(const sl_model_opts *opts, sl_err *err)
{
    bool keeps = opts && (opts->pack_cache == SL_PACK_BESIDE ||
                          opts->pack_cache == SL_PACK_IN_CACHE);
    return keeps ? SL_FAIL(err, REQUEST, "pack-cache: mock weights have no file to keep beside")
                 : SL_OK;
}

static sl_status fill(sl_model *m, const char *name, const sl_model_opts *opts, sl_err *err)
{
    const char *path = NULL;
    bool vocab_only = opts && opts->vocab_only, is_mock = false;
    enum tensor_dtype type;
    m->pack_cache = opts ? opts->pack_cache : SL_PACK_USE;
    SL_TRY(cut_mock(&name, &is_mock, &type, err));
    SL_TRY(engine_find_model(name, &m->arena, &path, err));
    if (is_mock) {
        SL_TRY(check_mock(opts, err));
        m->pack_cache = SL_PACK_IGNORE;
        SL_TRY(open_mock(m, path, err));
    } else {
        SL_TRY(io_open(path, vocab_only, &m->io, err));
    }
    SL_TRY(read_name(m, is_mock ? io_path(m->io) : path, err));
    SL_TRY(read_tokenizer(m, opts ? opts->chat_template_file : NULL, err));
    if (vocab_only) {
        if (!m->tok) {
            if (err) *err = m->tok_err;
            return m->tok_err.code;
        }
        return list_tokens(m, tok_n_vocab(m->tok), err);
    }
    SL_TRY(io_name_file(m->io, arch_cfg_read(m->io, &m->arena, &m->cfg, err), err));
    m->has_cfg = true;
    if (is_mock) SL_TRY(arch_mock(m->io, &m->cfg, type, &m->arena, err));
    arch_count_params(m->io, &m->cfg, &m->params, &m->active_params);
    for (int i = 0; i < io_n_tensor(m->io); i++)
        m->bytes += (int64_t)io_tensor(m->io, i)->n_bytes;
    if (m->pack_cache != SL_PACK_IGNORE) engine_pack_find(m);
    SL_TRY(list_tokens(m, m->cfg.n_vocab, err));
    return m->tok ? SL_OK : list_ends(m, m->cfg.n_vocab, err);
}

sl_status sl_model_open(const char *name, const sl_model_opts *opts, sl_model **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(sl_model), &p, err));
    sl_model *m = p;
    mem_arena_init(&m->arena, MEM_MISC, 0);
    sl_status st = fill(m, name, opts, err);
    if (st) {
        sl_model_close(m);
        return st;
    }
    *out = m;
    return SL_OK;
}

void sl_model_close(sl_model *m)
{
    if (!m) return;
    grammar_vocab_close(atomic_load_explicit(&m->gvocab, memory_order_acquire));
    text_tmpl_close(m->tmpl[0].t);
    text_tmpl_close(m->tmpl[1].t);
    tok_close(m->tok);
    io_pack_close(m->pack);
    io_close(m->io);
    mem_arena_fini(&m->arena);
    mem_free(m);
}

void sl_model_info_get(const sl_model *m, sl_model_info *out)
{
    *out = (sl_model_info){
        .arch = m->has_cfg ? m->cfg.arch : "",
        .name = m->name,
        .params = m->params,
        .active_params = m->active_params,
        .bytes = m->bytes,
        .n_vocab = m->has_cfg ? m->cfg.n_vocab
                   : m->tok   ? tok_n_vocab(m->tok)
                              : 0,
        .n_layer = m->cfg.n_layer,
        .n_ctx_train = m->cfg.n_ctx_train,
        .n_expert = m->cfg.n_expert,
        .n_expert_used = m->cfg.n_expert_used,
        .n_mtp = m->cfg.n_mtp,
        .bos = m->tok ? tok_bos(m->tok) : -1,
        .eos = m->tok ? tok_eos(m->tok) : -1,
        .add_bos = m->tok && tok_add_bos(m->tok),
        .has_tokenizer = m->tok != NULL,
        .has_template = m->tmpl[0].t || m->tmpl[1].t,
        .chat_template = m->tmpl[0].text,
        .chat_template_tools = engine_tmpl_for(m, true)->text,
        .n_embd = m->has_cfg ? m->cfg.d_model : 0,
        .tool_family = m->has_cfg ? arch_tool_family(&m->cfg) : NULL,
        .vocab_hash = m->vocab_hash,
    };
}
