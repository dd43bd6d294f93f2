/* SPDX-License-Identifier: Apache-2.0 */
/* find.c, hub.c: where models are. Nothing is fetched. */
#ifndef ENGINE_HUB_H
#define ENGINE_HUB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

bool engine_only_gguf(const char *dir);
/* By its name: a .gguf file that is a model (or its first part), not what accompanies one. */
bool engine_is_gguf_model(const char *name);
/* root: models--ORG--NAME. *is_hub: it is such a folder; then out is the snapshot of that revision,
 * or for "" that of refs/main, else the newest one. NOTFOUND: it has none. */
sl_status engine_hub_snapshot(const char *root, const char *rev, char *out, size_t n, bool *is_hub,
                              sl_err *err) BASE_MUST_USE;
/* The only GGUF model of a snapshot (or of its folders) that has tag as a word of its name, else as
 * the beginning of one; for "" out stays where it is another kind of folder. NOTFOUND lists them
 * where there are more. */
sl_status engine_hub_gguf(const char *dir, const char *tag, char *out, size_t n,
                          sl_err *err) BASE_MUST_USE;
/* What may follow ORG/NAME: "@REVISION", and "/FILE" or ":TAG"; each may be "". */
struct engine_hub_part {
    char rev[128];
    const char *rest, *tag;
};
/* The folder of such a name in the cache of this user. */
bool engine_hub_find(const char *name, char *out, size_t n, struct engine_hub_part *part);
/* "ORG/NAME" of a path inside such a folder. */
bool engine_hub_name(const char *path, char *out, size_t n);

#endif
