/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's cache on this machine, as huggingface_hub lays it out: models--ORG--NAME/refs/main
 * holds the name of a folder in models--ORG--NAME/snapshots, whose files are links to blobs.
 * Nothing is fetched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/hub.h"
#include "os/os.h"

#define PATH_BYTES 1024

static bool put(char *out, size_t n, const char *a, const char *b)
{
    int k = snprintf(out, n, "%s/%s", a, b);
    return k > 0 && (size_t)k < n;
}

/* The snapshot that refs/REV names. */
static bool ref_snapshot(const char *root, const char *rev, char *out, size_t n)
{
    char path[PATH_BYTES], *text = NULL;
    uint64_t len = 0;
    bool found = false;
    int bytes = snprintf(path, sizeof path, "%s/refs/%s", root, rev);
    if (bytes < 0 || (size_t)bytes >= sizeof path || os_path_kind(path) != OS_FILE ||
        os_read_file(path, 4096, &text, &len, NULL) != SL_OK)
        return false;
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        len--;
    if (len > 0 && len < 200 && !memchr(text, '/', len) && text[0] != '.') {
        int k = snprintf(out, n, "%s/snapshots/%.*s", root, (int)len, text);
        found = k > 0 && (size_t)k < n && os_path_kind(out) == OS_DIR;
    }
    mem_free(text);
    return found;
}

/* The snapshot that was changed last. */
static bool newest_snapshot(const char *root, char *out, size_t n)
{
    char dir[PATH_BYTES], path[PATH_BYTES], **names = NULL;
    int n_name = 0;
    bool found = false;
    int64_t newest = 0;
    if (!put(dir, sizeof dir, root, "snapshots") || os_list(dir, &names, &n_name, NULL))
        return false;
    for (int i = 0; i < n_name; i++) {
        if (!put(path, sizeof path, dir, names[i]) || os_path_kind(path) != OS_DIR) continue;
        int64_t at = os_path_mtime_ns(path);
        if (found && at <= newest) continue;
        newest = at;
        found = put(out, n, dir, names[i]);
    }
    os_list_free(names, n_name);
    return found;
}

/* The snapshot of a revision: a branch, a tag, or a commit's whole name. */
static bool rev_snapshot(const char *root, const char *rev, char *out, size_t n)
{
    if (strchr(rev, '/') || rev[0] == '.') return false;
    if (ref_snapshot(root, rev, out, n)) return true;
    int k = snprintf(out, n, "%s/snapshots/%s", root, rev);
    return k > 0 && (size_t)k < n && os_path_kind(out) == OS_DIR;
}

sl_status engine_hub_snapshot(const char *root, const char *rev, char *out, size_t n, bool *is_hub,
                              sl_err *err)
{
    char path[PATH_BYTES];
    *is_hub = put(path, sizeof path, root, "config.json") && os_path_kind(path) == OS_NONE &&
              put(path, sizeof path, root, "snapshots") && os_path_kind(path) == OS_DIR;
    if (!*is_hub) return SL_OK;
    if (*rev)
        return rev_snapshot(root, rev, out, n)
                   ? SL_OK
                   : SL_FAIL(err, NOTFOUND, "model not found: no revision %.60s in %.150s", rev,
                             root);
    if (ref_snapshot(root, "main", out, n) || newest_snapshot(root, out, n)) return SL_OK;
    return SL_FAIL(
        err, NOTFOUND,
        "%.150s: a folder of the hub's cache with nothing in snapshots: the download did not end",
        root);
}

/* ---- GGUF repositories: many files of one model ---- */

/* A file of a model; of split ones the first part. */
bool engine_is_gguf_model(const char *name)
{
    unsigned no = 0, count = 0;
    size_t n = strlen(name), tail = strlen("-00001-of-00003.gguf");
    if (!str_ends(name, ".gguf") || strcasestr(name, "mmproj") ||
        strncmp(name, "imatrix", 7) == 0 || str_ends(name, "imatrix.gguf"))
        return false;
    if (n > tail && sscanf(name + n - tail, "-%5u-of-%5u.gguf", &no, &count) == 2) return no == 1;
    return true;
}

struct found {
    const char *tag; /* part of the names that are wanted, in capitals or not; "" = all */
    int fit;         /* how the names fit that count: as fits() says */
    int n;
    char path[PATH_BYTES]; /* of the first */
    char names[160];
};

static bool is_part(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Is tag a word of the name (2: F16 in m-F16.gguf), the beginning of one (1: Q4 in m-Q4_K_M.gguf),
 * or neither (0: F16 in m-BF16.gguf)? */
static int fits(const char *name, const char *tag)
{
    size_t n = strlen(tag);
    int best = *tag ? 0 : 2;
    for (const char *s = name; n && (s = strcasestr(s, tag)); s++) {
        if (s > name && is_part(s[-1])) continue;
        best = BASE_MAX(best, is_part(s[n]) ? 1 : 2);
    }
    return best;
}

static void look(const char *dir, const char *sub, struct found *f)
{
    char path[PATH_BYTES], shown[300], **names = NULL;
    int n_name = 0;
    bool here = !*sub;
    if (!put(path, sizeof path, dir, sub)) return;
    if (here) path[strlen(dir)] = 0;
    if (os_list(path, &names, &n_name, NULL)) return;
    for (int i = 0; i < n_name; i++) {
        snprintf(shown, sizeof shown, "%s%s%s", sub, here ? "" : "/", names[i]);
        int fit = engine_is_gguf_model(names[i]) ? fits(shown, f->tag) : 0;
        if (!fit || fit < f->fit) continue;
        if (fit > f->fit) f->n = 0, f->names[0] = 0;
        f->fit = fit;
        size_t used = strlen(f->names);
        if (f->n++ == 0 && !put(f->path, sizeof f->path, path, names[i])) f->path[0] = 0;
        snprintf(f->names + used, sizeof f->names - used, "%s%s", used ? " " : "", shown);
    }
    os_list_free(names, n_name);
}

sl_status engine_hub_gguf(const char *dir, const char *tag, char *out, size_t n, sl_err *err)
{
    struct found f = {.tag = tag};
    char path[PATH_BYTES], **names = NULL;
    int n_name = 0;
    if (!*tag && put(path, sizeof path, dir, "config.json") && os_path_kind(path) == OS_FILE &&
        !engine_only_gguf(dir))
        return SL_OK;
    look(dir, "", &f);
    if (!f.n && os_list(dir, &names, &n_name, NULL) == SL_OK) {
        for (int i = 0; i < n_name; i++)
            if (put(path, sizeof path, dir, names[i]) && os_path_kind(path) == OS_DIR)
                look(dir, names[i], &f);
        os_list_free(names, n_name);
    }
    if (f.n == 1 && f.path[0]) snprintf(out, n, "%s", f.path);
    if (!f.n && *tag)
        return SL_FAIL(err, NOTFOUND,
                       "model not found: %.120s has no .gguf file of %.60s (a revision is written "
                       "ORG/NAME@REVISION)",
                       dir, tag);
    if (f.n < 2) return SL_OK;
    return SL_FAIL(err, NOTFOUND, "%.70s has %d models: add one of %.130s", dir, f.n, f.names);
}

/* ---- names ---- */

/* ORG/NAME, neither with a zero at its end. */
struct hub_name {
    const char *org, *name;
    int n_org, n_name;
};

/* The value of $NAME or ${NAME}, which *s begins with; *s is behind it then. NULL: it is none. */
static const char *variable(const char **s)
{
    char name[64];
    bool braces = (*s)[1] == '{';
    const char *from = *s + 1 + braces;
    size_t n = 0;
    while (is_part(from[n]))
        n++;
    if (!n || n >= sizeof name || (braces && from[n] != '}')) return NULL;
    memcpy(name, from, n);
    name[n] = 0;
    const char *v = getenv(name);
    if (v) *s = from + n + braces;
    return v;
}

/* dir with ~ in front and variables in it as huggingface_hub reads them. */
static bool expand(const char *dir, char *out, size_t n)
{
    const char *home = dir[0] == '~' && (dir[1] == '/' || !dir[1]) ? getenv("HOME") : NULL;
    int k = snprintf(out, n, "%s", home ? home : "");
    for (const char *s = dir + (home != NULL); k >= 0 && (size_t)k < n && *s;) {
        const char *v = *s == '$' ? variable(&s) : NULL;
        k += v ? snprintf(out + k, n - (size_t)k, "%s", v)
               : snprintf(out + k, n - (size_t)k, "%c", *s++);
    }
    return k >= 0 && (size_t)k < n;
}

/* models--ORG--NAME of one of the places where the cache may be. */
static bool in_cache(const char *dir, const char *tail, const struct hub_name *of, char *out,
                     size_t n)
{
    char root[PATH_BYTES];
    if (!expand(dir, root, sizeof root)) return false;
    int k = snprintf(out, n, "%s%s/models--%.*s--%.*s", root, tail, of->n_org, of->org, of->n_name,
                     of->name);
    return k > 0 && (size_t)k < n && os_path_kind(out) == OS_DIR;
}

bool engine_hub_find(const char *name, char *out, size_t n, struct engine_hub_part *part)
{
    static const char *const at[][2] = {{"HF_HUB_CACHE", ""},
                                        {"HUGGINGFACE_HUB_CACHE", ""},
                                        {"HF_HOME", "/hub"},
                                        {"XDG_CACHE_HOME", "/huggingface/hub"},
                                        {"HOME", "/.cache/huggingface/hub"}};
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || name[0] == '.' || name[0] == '~' || !slash[1]) return false;
    struct hub_name of = {.org = name, .n_org = (int)(slash - name), .name = slash + 1};
    of.n_name = (int)strcspn(of.name, "/:@");
    const char *end = of.name + of.n_name;
    *part = (struct engine_hub_part){.rest = "", .tag = ""};
    if (*end == '@') {
        size_t k = strcspn(++end, "/:");
        if (!k || k >= sizeof part->rev) return false;
        memcpy(part->rev, end, k);
        end += k;
    }
    if (*end == '/') part->rest = end + 1;
    if (*end == ':') part->tag = end + 1;
    for (int i = 0; i < BASE_COUNT_OF(at); i++) {
        const char *dir = getenv(at[i][0]);
        if (dir && *dir && in_cache(dir, at[i][1], &of, out, n)) return true;
    }
    return false;
}

bool engine_hub_name(const char *path, char *out, size_t n)
{
    const char *s = strstr(path, "/models--"), *end = s ? strstr(s, "/snapshots/") : NULL;
    if (strncmp(path, "models--", 8) == 0 && !s) s = path - 1, end = strstr(path, "/snapshots/");
    if (!s || !end || strchr(s + 1, '/') != end) return false;
    s += strlen("/models--");
    const char *mid = strstr(s, "--");
    if (!mid || mid >= end || mid == s) return false;
    int k = snprintf(out, n, "%.*s/%.*s", (int)(mid - s), s, (int)(end - mid - 2), mid + 2);
    return k > 0 && (size_t)k < n;
}
