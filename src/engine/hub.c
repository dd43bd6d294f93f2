/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's cache on this machine, as huggingface_hub lays it out: models--ORG--NAME/refs/main
 * holds the name of a folder in models--ORG--NAME/snapshots, whose files are links to blobs.
 * Nothing is fetched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "os/os.h"

#define PATH_BYTES 1024

static bool put(char *out, size_t n, const char *a, const char *b)
{
    int k = snprintf(out, n, "%s/%s", a, b);
    return k > 0 && (size_t)k < n;
}

/* The snapshot that refs/main names. */
static bool main_snapshot(const char *root, char *out, size_t n)
{
    char path[PATH_BYTES], *text = NULL;
    uint64_t len = 0;
    bool found = false;
    if (!put(path, sizeof path, root, "refs/main") || os_path_kind(path) != OS_FILE ||
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

sl_status engine_hub_snapshot(const char *root, char *out, size_t n, bool *is_hub, sl_err *err)
{
    char path[PATH_BYTES];
    *is_hub = put(path, sizeof path, root, "config.json") && os_path_kind(path) == OS_NONE &&
              put(path, sizeof path, root, "snapshots") && os_path_kind(path) == OS_DIR;
    if (!*is_hub || main_snapshot(root, out, n) || newest_snapshot(root, out, n)) return SL_OK;
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
    if (!str_ends(name, ".gguf") || strncmp(name, "mmproj", 6) == 0 ||
        strncmp(name, "imatrix", 7) == 0)
        return false;
    if (n > tail && sscanf(name + n - tail, "-%5u-of-%5u.gguf", &no, &count) == 2) return no == 1;
    return true;
}

struct found {
    const char *tag; /* part of the names that are wanted, in capitals or not; "" = all */
    int n;
    char path[PATH_BYTES]; /* of the first */
    char names[160];
};

static void look(const char *dir, const char *sub, struct found *f)
{
    char path[PATH_BYTES], shown[300], **names = NULL;
    int n_name = 0;
    if (!put(path, sizeof path, dir, sub) || os_list(path, &names, &n_name, NULL)) return;
    for (int i = 0; i < n_name; i++) {
        size_t used = strlen(f->names);
        snprintf(shown, sizeof shown, "%s%s%s", *sub == '.' ? "" : sub, *sub == '.' ? "" : "/",
                 names[i]);
        if (!engine_is_gguf_model(names[i]) || !strcasestr(shown, f->tag)) continue;
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
    if (put(path, sizeof path, dir, "config.json") && os_path_kind(path) == OS_FILE &&
        !engine_only_gguf(dir))
        return SL_OK;
    look(dir, ".", &f);
    if (!f.n && os_list(dir, &names, &n_name, NULL) == SL_OK) {
        for (int i = 0; i < n_name; i++)
            if (put(path, sizeof path, dir, names[i]) && os_path_kind(path) == OS_DIR)
                look(dir, names[i], &f);
        os_list_free(names, n_name);
    }
    if (f.n == 1 && f.path[0]) snprintf(out, n, "%s", f.path);
    if (!f.n && *tag)
        return SL_FAIL(err, NOTFOUND, "model not found: %.120s has no .gguf file of %.60s", dir,
                       tag);
    if (f.n < 2) return SL_OK;
    return SL_FAIL(err, NOTFOUND, "%.70s has %d models: add one of %.130s", dir, f.n, f.names);
}

/* ---- names ---- */

/* ORG/NAME, neither with a zero at its end. */
struct hub_name {
    const char *org, *name;
    int n_org, n_name;
};

/* models--ORG--NAME of one of the places where the cache may be. Where dir begins with ~ that is
 * the home of the user, as in huggingface_hub. */
static bool in_cache(const char *dir, const char *tail, const struct hub_name *of, char *out,
                     size_t n)
{
    const char *home = dir[0] == '~' && (dir[1] == '/' || !dir[1]) ? getenv("HOME") : NULL;
    int k = snprintf(out, n, "%s%s%s/models--%.*s--%.*s", home ? home : "", home ? dir + 1 : dir,
                     tail, of->n_org, of->org, of->n_name, of->name);
    return k > 0 && (size_t)k < n && os_path_kind(out) == OS_DIR;
}

bool engine_hub_find(const char *name, char *out, size_t n, const char **rest, const char **tag)
{
    static const char *const at[][2] = {{"HF_HUB_CACHE", ""},
                                        {"HUGGINGFACE_HUB_CACHE", ""},
                                        {"HF_HOME", "/hub"},
                                        {"XDG_CACHE_HOME", "/huggingface/hub"},
                                        {"HOME", "/.cache/huggingface/hub"}};
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || name[0] == '.' || name[0] == '~' || !slash[1]) return false;
    struct hub_name of = {.org = name, .n_org = (int)(slash - name), .name = slash + 1};
    of.n_name = (int)strcspn(of.name, "/:");
    const char *end = of.name + of.n_name;
    *rest = *end == '/' ? end + 1 : "";
    *tag = *end == ':' ? end + 1 : "";
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
