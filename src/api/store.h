/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives a request: stored responses, and usage by key and day. SQLite (WAL) in a file or in
 * memory. Without SQLite in the build every call but close fails with UNSUPPORTED. */
#ifndef API_STORE_H
#define API_STORE_H

#include "api/api_internal.h"

#define API_STORE_MAX 10000 /* responses; the oldest go first */

/* path NULL: in memory. Errors: IO (names the file), NOMEM. */
sl_status api_store_open(api *a, const char *path, sl_err *err) BASE_MUST_USE;
void api_store_close(api *a);

/* key: the name of whose it is; others do not find it. body: the response as JSON; history: the
 * messages up to its end; items: the same as items, commas between them, no brackets, of which the
 * first n_input bytes are what went into it. Threads: any. */
struct api_stored {
    const char *id, *key;
    const char *body, *history, *items;
    size_t n_body, n_history, n_items, n_input;
};
sl_status api_store_put(api *a, const struct api_stored *s, sl_err *err) BASE_MUST_USE;
/* Copies in the arena. NOTFOUND. */
sl_status api_store_get(api *a, const char *id, const char *key, struct arena *arena,
                        struct api_stored *out, sl_err *err) BASE_MUST_USE;
#define API_STORE_FIND 1000 /* of a key's newest responses, in which an item is looked for */
/* An input or output item of one of key's responses, in the arena. NOTFOUND. */
sl_status api_store_item(api *a, const char *id, const char *key, struct arena *arena,
                         const struct json **out, sl_err *err) BASE_MUST_USE;
sl_status api_store_delete(api *a, const char *id, const char *key, sl_err *err) BASE_MUST_USE;
/* Add what the keys used since the last call. */
void api_store_usage(api *a);

#endif
