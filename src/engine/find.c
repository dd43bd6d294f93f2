/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model is, by path or name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_internal.h"
#include "engine/hub.h"
#include "os/os.h"

#ifndef SL_SHARE_DIR
#define SL_SHARE_DIR "/usr/local/share/sluice/models"
#endif
#define PATH_BYTES 1024

/* Does a folder hold GGUF files and no others with weights? Then they are the model, with a
 * config.json beside them or without. */
bool engine_only_gguf(const char *dir)
{
    char **names = NULL;
    int n = 0;
    bool gguf = false, other = false;
    if (os_list(dir, &names, &n, NULL)) return false;
    for (int i = 0; i < n; i++) {
        gguf = gguf || str_ends(names[i], ".gguf");
        other = other || str_ends(names[i], ".safetensors") ||
                str_ends(names[i], ".safetensors.index.json");
    }
    os_list_free(names, n);
    return gguf && !other;
}

/* path, where there is such a file or folder. */
static bool settle(const char *path, char *out, size_t n)
{
    if (os_path_kind(path) == OS_NONE) return false;
    int k = snprintf(out, n, "%s", path);
    return k > 0 && (size_t)k < n;
}

/* What a folder of the hub's cache, or of that name, stands for: the model in its snapshot. out
 * stays where path is nothing of the kind. */
static sl_status from_hub(const char *path, const struct engine_hub_part *part, char *out, size_t n,
                          sl_err *err)
{
    char snapshot[PATH_BYTES], inside[PATH_BYTES];
    const char *rest = part->rest;
    bool is_hub = false;
    SL_TRY(engine_hub_snapshot(path, part->rev, snapshot, sizeof snapshot, &is_hub, err));
    if (!is_hub) return SL_OK;
    int k = snprintf(inside, sizeof inside, "%s%s%s", snapshot, *rest ? "/" : "", rest);
    if (k < 0 || (size_t)k >= sizeof inside || os_path_kind(inside) == OS_NONE)
        return SL_FAIL(err, NOTFOUND, "model not found: %.80s is not in %.120s", rest, snapshot);
    snprintf(out, n, "%s", inside);
    return os_path_kind(inside) == OS_DIR ? engine_hub_gguf(inside, part->tag, out, n, err) : SL_OK;
}

/* A folder: of the hub's cache; one with a GGUF model and no others, which stands for that; or a
 * Hugging Face folder, which stands for itself. */
static sl_status from_folder(const char *path, char *out, size_t n, sl_err *err)
{
    char root[PATH_BYTES];
    if (engine_only_gguf(path)) return engine_hub_gguf(path, "", out, n, err);
    int k = snprintf(root, sizeof root, "%s", path);
    if (k < 0 || (size_t)k >= sizeof root) return SL_OK;
    while (k > 1 && root[k - 1] == '/')
        root[--k] = 0;
    if (str_ends(root, "/snapshots")) root[k - (int)strlen("/snapshots")] = 0;
    return from_hub(root, &(struct engine_hub_part){.rest = "", .tag = ""}, out, n, err);
}

static bool in_folder(const char *dir, const char *tail, const char *name, char *out, size_t n)
{
    char path[PATH_BYTES];
    int k = snprintf(path, sizeof path, "%s%s/%s", dir, tail, name);
    if (k > 0 && (size_t)k < sizeof path && settle(path, out, n)) return true;
    k = snprintf(path, sizeof path, "%s%s/%s.gguf", dir, tail, name);
    return k > 0 && (size_t)k < sizeof path && settle(path, out, n);
}

/* The folder that this program lies in. */
static bool exe_dir(char *buf, size_t n)
{
    ssize_t k = readlink("/proc/self/exe", buf, n - 1);
    if (k <= 0) return false;
    buf[k] = 0;
    char *slash = strrchr(buf, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

static bool by_name(const char *name, char *out, size_t n)
{
    /* beside an installed program; in a source tree from build/, build/tests/ and
     * build/docs/examples/ */
    static const char *const near_exe[] = {"/../share/sluice/models", "/../models", "/../../models",
                                           "/../../../models"};
    char exe[PATH_BYTES];
    const char *env = getenv("SLUICE_MODELS"), *home = getenv("HOME");
    if (env && *env && in_folder(env, "", name, out, n)) return true;
    if (home && in_folder(home, "/.local/share/sluice/models", name, out, n)) return true;
    if (exe_dir(exe, sizeof exe))
        for (int i = 0; i < BASE_COUNT_OF(near_exe); i++)
            if (in_folder(exe, near_exe[i], name, out, n)) return true;
    return in_folder(SL_SHARE_DIR, "", name, out, n);
}

sl_status engine_find_model(const char *name, struct arena *a, const char **path, sl_err *err)
{
    char out[PATH_BYTES], hub[PATH_BYTES];
    struct engine_hub_part part;
    char *copy = NULL;
    if (!name) name = "demo";
    bool is_path = strchr(name, '/') || str_ends(name, ".gguf") || str_ends(name, ".packed");
    if (!*name) return SL_FAIL(err, NOTFOUND, "model: empty name");
    if (strstr(name, "://"))
        return SL_FAIL(
            err, NOTFOUND,
            "model not found: %.140s: nothing is fetched: download it, and give its path", name);
    /* a name goes to the model folders first, so that a stray folder called "demo" does not hide
     * the demo model */
    if ((!is_path && by_name(name, out, sizeof out)) || settle(name, out, sizeof out)) {
        snprintf(hub, sizeof hub, "%s", out);
        if (os_path_kind(out) == OS_DIR) SL_TRY(from_folder(hub, out, sizeof out, err));
    } else if (engine_hub_find(name, hub, sizeof hub, &part)) {
        snprintf(out, sizeof out, "%s", hub);
        SL_TRY(from_hub(hub, &part, out, sizeof out, err));
    } else if (is_path) {
        return SL_FAIL(err, NOTFOUND, "model not found: %.160s: no such file or folder%s", name,
                       name[0] != '/' && name[0] != '.' && !str_ends(name, ".gguf")
                           ? ", nor in the hub's cache"
                           : "");
    } else {
        return SL_FAIL(err, NOTFOUND,
                       "model not found: %.80s: no such file, and not in $SLUICE_MODELS, "
                       "~/.local/share/sluice/models or %s",
                       name, SL_SHARE_DIR);
    }
    SL_TRY(mem_arena_str(a, out, strlen(out), &copy, err));
    *path = copy;
    return SL_OK;
}
