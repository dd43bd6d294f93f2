/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face folders. Only the files named here and the *.safetensors that the index names are
 * ever opened: nothing that can contain code
 * (.bin, .pt, .py, ...). Names with a slash are refused; a name may be a symbolic link to a regular
 * file, as in the hub's cache. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/pack_internal.h"
#include "text/utf8.h"

#define MAX_CONFIG ((uint64_t)4 << 20)
#define MAX_INDEX ((uint64_t)256 << 20)
#define MAX_SHARDS 10000
#define MAX_TEMPLATES 40 /* a packed file holds 64 texts */

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";
static const char ascend_name[] = "quant_model_description";
static const char *const text_name[] = {
    "tokenizer.json",          "tokenizer_config.json", "chat_template.jinja", "chat_template.json",
    "special_tokens_map.json", "added_tokens.json",     "vocab.json",          "merges.txt",
    "tokenizer.model",         "tiktoken.model"};
static const char template_dir[] = "additional_chat_templates"; /* its *.jinja are texts too */

/* DIR/NAME in the arena. */
static sl_status join(io_model *m, const char *name, char **out, sl_err *err)
{
    size_t n = strlen(m->path), k = strlen(name);
    void *p = NULL;
    while (n > 1 && m->path[n - 1] == '/')
        n--;
    SL_TRY(mem_arena_alloc(&m->arena, n + k + 2, &p, err));
    memcpy(p, m->path, n);
    ((char *)p)[n] = '/';
    memcpy((char *)p + n + 1, name, k);
    *out = p;
    return SL_OK;
}

sl_status io_folder_json(io_model *m, const char *path, const char *p, uint64_t n,
                         const struct json **out, sl_err *err)
{
    const char *what = io_foreign(p, n);
    if (what) return SL_FAIL(err, FORMAT, "%s: not JSON but %s", io_short(path), what);
    SL_TRY(text_json_parse_python(&m->arena, io_short(path), p, n, out, err));
    if ((*out)->kind == JSON_OBJECT_K) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: byte 0: not a JSON object", io_short(path));
}

/* Nothing to say? */
static bool is_blank(const char *p, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && memchr(" \t\r\n", p[i], 4))
        i++;
    return i == n;
}

static sl_status read_json(io_model *m, const char *name, uint64_t most, const struct json **out,
                           sl_err *err)
{
    char *path = NULL, *p = NULL;
    uint64_t n = 0;
    SL_TRY(join(m, name, &path, err));
    if (os_path_kind(path) == OS_NONE) return SL_OK;
    SL_TRY(os_read_file(path, most, &p, &n, err));
    bool none = strcmp(name, "generation_config.json") == 0 && is_blank(p, n);
    sl_status st = none ? SL_OK : io_folder_json(m, path, p, n, out, err);
    mem_free(p);
    return st;
}

sl_status io_folder_read(const io_model *m, const char *name, char **out, uint64_t *n, sl_err *err)
{
    char path[4096];
    *out = NULL;
    int k = snprintf(path, sizeof path, "%s/%s", m->path, name);
    if (k < 0 || (size_t)k >= sizeof path || os_path_kind(path) == OS_NONE) return SL_OK;
    return os_read_file(path, MAX_CONFIG, out, n, err);
}

/* One file among the texts, when it is there. */
static sl_status map_text(io_model *m, const char *name, sl_err *err)
{
    char *path = NULL;
    struct io_text *t = &m->text[m->n_text];
    SL_TRY(join(m, name, &path, err));
    if (os_path_kind(path) == OS_NONE) return SL_OK;
    SL_TRY(os_map_open(path, &t->map, err));
    t->name = name;
    m->n_text++;
    const char *what = io_foreign(t->map.data, t->map.size);
    return what ? SL_FAIL(err, FORMAT, "%s: %s", io_short(path), what) : SL_OK;
}

/* additional_chat_templates/NAME.jinja, sorted by name. */
static sl_status map_templates(io_model *m, char **names, int n, sl_err *err)
{
    int n_tmpl = 0;
    for (int i = 0; i < n; i++) {
        char *name = NULL, buf[320];
        if (!io_ends_with(names[i], ".jinja") || names[i][0] == '.') continue;
        if (++n_tmpl > MAX_TEMPLATES)
            return SL_FAIL(err, LIMIT, "%s: %s: more than %d templates", io_short(m->path),
                           template_dir, MAX_TEMPLATES);
        int k = snprintf(buf, sizeof buf, "%s/%s", template_dir, names[i]);
        SL_TRY(mem_arena_str(&m->arena, buf, (size_t)k, &name, err));
        SL_TRY(map_text(m, name, err));
    }
    return SL_OK;
}

static sl_status map_texts(io_model *m, sl_err *err)
{
    void *p = NULL;
    char *dir = NULL, **names = NULL;
    int n = 0;
    SL_TRY(join(m, template_dir, &dir, err));
    SL_TRY(mem_arena_array(&m->arena, BASE_COUNT_OF(text_name) + MAX_TEMPLATES, sizeof *m->text, &p,
                           err));
    m->text = p;
    for (int i = 0; i < BASE_COUNT_OF(text_name); i++)
        SL_TRY(map_text(m, text_name[i], err));
    if (os_path_kind(dir) != OS_DIR) return SL_OK;
    SL_TRY(os_list(dir, &names, &n, err));
    sl_status st = map_templates(m, names, n, err);
    os_list_free(names, n);
    return st;
}

/* ---- weights ---- */
/* A name that an index may give: a plain *.safetensors of this folder. */
static const char *shard_fault(const char *name, uint64_t n)
{
    const char *fault = io_name_fault(name, n, 255);
    if (fault) return fault;
    if (memchr(name, '/', n) || name[0] == '.') return "is not a name inside the folder";
    return io_ends_with(name, ".safetensors") ? NULL : "is not a .safetensors file";
}

struct shards {
    struct io_index by_name; /* tensor -> shard */
    struct io_index by_file; /* file -> shard */
    char **file;
    int n_file, n_tensor;
};

/* The members of weight_map; each becomes a shard number. */
static sl_status read_weight_map(struct io_scan *s, struct shards *sh, sl_err *err)
{
    bool more = true;
    SL_TRY(io_scan_char(s, '{', err));
    for (bool first = true;; first = false) {
        char *name = NULL, *file = NULL;
        uint64_t n = 0, n_file = 0, at = io_scan_at(s);
        SL_TRY(io_scan_member(s, first, &more, &name, &n, err));
        if (!more) return SL_OK;
        SL_TRY(io_scan_str(s, &file, &n_file, err));
        const char *fault = shard_fault(file, n_file);
        if (fault)
            return IO_FAIL_AT(err, s->path, at, "weight_map: file \"%.60s\" %s", file, fault);
        int shard = io_index_find(&sh->by_file, file, n_file);
        if (shard < 0) {
            if (sh->n_file == MAX_SHARDS)
                return IO_FAIL_AT(err, s->path, at, "weight_map: more than %d files", MAX_SHARDS);
            shard = sh->n_file++;
            sh->file[shard] = file;
            io_index_put(&sh->by_file, file, n_file, shard);
        }
        if (io_index_put(&sh->by_name, name, n, shard) >= 0)
            return IO_FAIL_AT(err, s->path, at, "weight_map: tensor %.80s is there twice", name);
        sh->n_tensor++;
    }
}

/* Members of the object at s, which is left where it is. */
static sl_status count_members(struct io_scan s, uint64_t *n, sl_err *err)
{
    bool more = true;
    *n = 0;
    SL_TRY(io_scan_char(&s, '{', err));
    for (bool first = true;; first = false) {
        SL_TRY(io_scan_member(&s, first, &more, NULL, NULL, err));
        if (!more) return SL_OK;
        SL_TRY(io_scan_skip(&s, err));
        ++*n;
    }
}

static sl_status init_shards(io_model *m, uint64_t n, struct shards *sh, sl_err *err)
{
    void *p = NULL;
    uint64_t n_file = BASE_MIN(n, (uint64_t)MAX_SHARDS);
    SL_TRY(io_index_init(&sh->by_name, &m->arena, n, err));
    SL_TRY(io_index_init(&sh->by_file, &m->arena, n_file, err));
    SL_TRY(mem_arena_array(&m->arena, n_file, sizeof *sh->file, &p, err));
    sh->file = p;
    return SL_OK;
}

static sl_status scan_index(io_model *m, struct io_scan *s, struct shards *sh, sl_err *err)
{
    bool more = true, found = false;
    SL_TRY(io_scan_char(s, '{', err));
    for (bool first = true;; first = false) {
        char *name = NULL;
        uint64_t n = 0;
        SL_TRY(io_scan_member(s, first, &more, &name, &n, err));
        if (!more) break;
        if (strcmp(name, "weight_map") != 0) {
            SL_TRY(io_scan_skip(s, err));
            continue;
        }
        if (found) return IO_FAIL_AT(err, s->path, io_scan_at(s), "weight_map is there twice");
        found = true;
        SL_TRY(count_members(*s, &n, err));
        SL_TRY(init_shards(m, n, sh, err));
        SL_TRY(read_weight_map(s, sh, err));
    }
    if (io_scan_peek(s) >= 0)
        return IO_FAIL_AT(err, s->path, io_scan_at(s), "bytes after the end of the JSON");
    if (!found || sh->n_file == 0) return IO_FAIL_AT(err, s->path, 0, "no weight_map");
    return SL_OK;
}

static sl_status read_index(io_model *m, const char *path, struct shards *sh, sl_err *err)
{
    struct os_map map;
    SL_TRY(os_map_open(path, &map, err));
    sl_status st;
    if (map.size > MAX_INDEX)
        st = SL_FAIL(err, LIMIT, "%s: %llu bytes, at most %llu are read", io_short(path),
                     (unsigned long long)map.size, (unsigned long long)MAX_INDEX);
    else if (io_foreign(map.data, map.size))
        st = SL_FAIL(err, FORMAT, "%s: not JSON but %s", io_short(path),
                     io_foreign(map.data, map.size));
    else {
        uint64_t bom = text_utf8_bom(map.data, (size_t)map.size);
        struct io_scan s = io_scan_init(path, map.data + bom, map.size - bom, bom, &m->arena);
        st = scan_index(m, &s, sh, err);
    }
    os_map_close(&map);
    return st;
}

/* Of a shard's tensors, those that the index gives to it. */
static sl_status take_shard(io_model *m, int shard, const struct shards *sh, sl_err *err)
{
    struct tensor *t = NULL;
    int n = 0;
    SL_TRY(io_safetensors_read(m, shard, &t, &n, err));
    for (int i = 0; i < n; i++) {
        if (io_index_find(&sh->by_name, t[i].name, strlen(t[i].name)) != shard) continue;
        m->tensor[m->n_tensor++] = t[i];
    }
    return SL_OK;
}

static sl_status open_shards(io_model *m, const char *index_path, sl_err *err)
{
    struct shards sh = {0};
    void *p = NULL;
    SL_TRY(read_index(m, index_path, &sh, err));
    SL_TRY(mem_arena_array(&m->arena, (size_t)sh.n_file, sizeof *m->file, &p, err));
    m->file = p;
    SL_TRY(mem_arena_array(&m->arena, (size_t)sh.n_tensor, sizeof *m->tensor, &p, err));
    m->tensor = p;
    for (int i = 0; i < sh.n_file; i++) {
        char *path = NULL;
        SL_TRY(join(m, sh.file[i], &path, err));
        SL_TRY(io_add_file(m, path, err));
        SL_TRY(take_shard(m, i, &sh, err));
    }
    m->promised = sh.by_name; /* what a shard lacks is missed where it is needed */
    return io_index_tensors(m, err);
}

static sl_status open_single(io_model *m, const char *path, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof *m->file, &p, err));
    m->file = p;
    SL_TRY(io_add_file(m, path, err));
    SL_TRY(io_safetensors_read(m, 0, &m->tensor, &m->n_tensor, err));
    return io_index_tensors(m, err);
}

/* A folder of somebody else's adapter: it has no weights of its own, or those of the adapter alone.
 */
static sl_status refuse_adapter(const io_model *m, sl_err *err)
{
    char *text = NULL;
    struct arena a;
    const struct json *o = NULL;
    const char *base = NULL;
    uint64_t n = 0;
    SL_TRY(io_folder_read(m, "adapter_config.json", &text, &n, err));
    if (!text) return SL_OK;
    mem_arena_init(&a, MEM_SCRATCH, 0);
    if (text_json_parse(&a, "adapter_config.json", text, n, &o, NULL) == SL_OK &&
        text_json_str(o, "base_model_name_or_path", NULL, &base, NULL) != SL_OK)
        base = NULL;
    sl_status st = SL_FAIL(
        err, UNSUPPORTED,
        "%s: an adapter (adapter_config.json), not a model: merge it into its base model%s%.80s",
        io_short(m->path), base ? " " : "", base ? base : "");
    mem_arena_fini(&a);
    mem_free(text);
    return st;
}

sl_status io_need_config(const io_model *m, const struct json **out, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    *out = m->config;
    if (*out) return SL_OK;
    if (os_path_kind(m->path) != OS_DIR)
        return SL_FAIL(err, NOTFOUND,
                       "%s: weights without config.json: give the folder that has both",
                       io_short(m->path));
    SL_TRY(refuse_adapter(m, err));
    SL_TRY(io_folder_read(m, "params.json", &text, &n, err));
    mem_free(text);
    return SL_FAIL(err, NOTFOUND, "no config.json in %s%s", io_short(m->path),
                   text ? " (params.json is of another layout, which is not read)" : "");
}

/* Neither of the usual names: the only *.safetensors there is, else say what is wrong. */
static sl_status open_other(io_model *m, sl_err *err)
{
    char **names = NULL, *path = NULL;
    int n = 0, n_found = 0, found = -1, gguf = -1, other = -1, index = -1, n_index = 0;
    SL_TRY(refuse_adapter(m, err));
    SL_TRY(os_list(m->path, &names, &n, err));
    for (int i = 0; i < n; i++) {
        if (io_ends_with(names[i], ".safetensors")) n_found++, found = i;
        if (io_ends_with(names[i], ".safetensors.index.json")) n_index++, index = i;
        if (io_ends_with(names[i], ".gguf")) gguf = i;
        if (io_ends_with(names[i], ".bin") || io_ends_with(names[i], ".pt") ||
            io_ends_with(names[i], ".pth"))
            other = i;
    }
    sl_status st = SL_OK;
    bool sharded = n_found != 1 && n_index == 1;
    if (sharded)
        st = join(m, names[index], &path, err);
    else if (n_found == 1)
        st = join(m, names[found], &path, err);
    else if (n_found > 1)
        st = SL_FAIL(err, NOTFOUND, "%s: %d .safetensors files but no %s", io_short(m->path),
                     n_found, index_name);
    else if (gguf >= 0)
        st = SL_FAIL(err, NOTFOUND, "%s: no .safetensors files; give the path of %.80s itself",
                     io_short(m->path), names[gguf]);
    else if (other >= 0)
        st = SL_FAIL(err, UNSUPPORTED,
                     "%s: no .safetensors files; %.60s is not read, since such files can run code",
                     io_short(m->path), names[other]);
    else
        st = SL_FAIL(err, NOTFOUND, "%s: no weights: neither .safetensors nor .gguf files",
                     io_short(m->path));
    os_list_free(names, n);
    if (st) return st;
    return sharded ? open_shards(m, path, err) : open_single(m, path, err);
}

static sl_status open_weights(io_model *m, sl_err *err)
{
    char *path = NULL;
    SL_TRY(join(m, single_name, &path, err));
    if (os_path_kind(path) != OS_NONE) return open_single(m, path, err);
    SL_TRY(join(m, index_name, &path, err));
    if (os_path_kind(path) != OS_NONE) return open_shards(m, path, err);
    return open_other(m, err);
}

static bool is_description(const char *name)
{
    return strncmp(name, ascend_name, strlen(ascend_name)) == 0 && io_ends_with(name, ".json");
}

/* ModelSlim's list of every tensor's type: quant_model_description.json, or with the types in its
 * name. */
static sl_status find_description(io_model *m, sl_err *err)
{
    char **names = NULL, *name = NULL;
    int n = 0, found = -1;
    sl_status st = SL_OK;
    SL_TRY(os_list(m->path, &names, &n, err));
    for (int i = 0; i < n; i++)
        if (is_description(names[i]) && (found < 0 || strcmp(names[i], names[found]) < 0))
            found = i;
    if (found >= 0)
        SL_TRY_OUT(mem_arena_str(&m->arena, names[found], strlen(names[found]), &name, err));
    if (name) SL_TRY_OUT(read_json(m, name, MAX_INDEX, &m->quant, err));
    if (m->quant) m->quant_method = "ascend";
    m->quant_file = name;
out:
    os_list_free(names, n);
    return st;
}

/* Does config.json's quantization_config say all of it? Not where it names no quantiser, or only
 * ModelSlim. */
static bool says_all(const io_model *m)
{
    const struct json *q = io_quant_config(m);
    const struct json *v = q && q->kind == JSON_OBJECT_K ? text_json_get(q, "quant_method") : NULL;
    if (!q || q->kind != JSON_OBJECT_K) return q != NULL;
    if (!v || v->kind == JSON_NULL_K) return false;
    return v->kind != JSON_STR_K || (*v->s && strcasecmp(v->s, "ascend") != 0);
}

/* Quantisers that describe their work in a file of their own. config.json's quantization_config,
 * where there is one, comes first. */
static sl_status find_other_scheme(io_model *m, sl_err *err)
{
    static const char *const other[][2] = {{"hf_quant_config.json", "modelopt"},
                                           {"quantize_config.json", "gptq"},
                                           {"quant_config.json", "awq"}};
    if (says_all(m)) return SL_OK;
    for (int i = 0; i < BASE_COUNT_OF(other) && !m->quant; i++) {
        SL_TRY(read_json(m, other[i][0], MAX_CONFIG, &m->quant, err));
        if (!m->quant) continue;
        m->quant_file = other[i][0];
        sl_status st = text_json_str(m->quant, "quant_method", other[i][1], &m->quant_method, err);
        if (st) status_prefix(err, "%s: %s", io_short(m->path), m->quant_file);
        SL_TRY(st);
    }
    return m->quant ? SL_OK : find_description(m, err);
}

sl_status io_folder_open(io_model *m, bool vocab_only, sl_err *err)
{
    SL_TRY(read_json(m, "config.json", MAX_CONFIG, &m->config, err));
    SL_TRY(read_json(m, "generation_config.json", MAX_CONFIG, &m->generation_config, err));
    SL_TRY(map_texts(m, err));
    if (vocab_only) return SL_OK;
    SL_TRY(open_weights(m, err));
    SL_TRY(io_plain_names(m, err));
    SL_TRY(io_split_fused(m, err));
    SL_TRY(find_other_scheme(m, err));
    return io_scheme_choose(m, err);
}

const struct json *io_text_config(const struct json *config)
{
    const struct json *inner = text_json_get(config, "text_config");
    return text_json_get(inner, "hidden_size") ? inner : config;
}

const struct json *io_config(const io_model *m)
{
    return m->config;
}

const struct json *io_generation_config(const io_model *m)
{
    return m->generation_config;
}

const char *io_text_file(const io_model *m, const char *name, uint64_t *n)
{
    *n = 0;
    for (int i = 0; i < m->n_text; i++) {
        if (strcmp(m->text[i].name, name) != 0) continue;
        *n = m->text[i].map.size;
        return (const char *)m->text[i].map.data;
    }
    return NULL;
}

const char *io_text_name(const io_model *m, int i)
{
    return i >= 0 && i < m->n_text ? m->text[i].name : NULL;
}
