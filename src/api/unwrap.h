/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a free-form tool's call, out of arguments that stream as {"input": "..."}.
 *
 * What comes out does not depend on how the arguments were cut. Arguments of another form (the
 * model is not held to this one) come out at the end: the one text of an object, or else all as it
 * is. */
#ifndef API_UNWRAP_H
#define API_UNWRAP_H

#include "base/str.h"

#define API_UNWRAP_KEY "input"

struct api_unwrap {
    enum { API_UNWRAP_HEAD, API_UNWRAP_TEXT, API_UNWRAP_DONE, API_UNWRAP_OTHER } state;
    struct str raw; /* fed; of the text what was not taken yet */
};

/* Before the first arguments. fini is due afterwards. */
void api_unwrap_init(struct api_unwrap *u);
void api_unwrap_fini(struct api_unwrap *u);
/* More of the arguments; the text that they make visible onto out. A failed raw fails out. */
void api_unwrap_feed(struct api_unwrap *u, const char *s, size_t n, struct str *out);
/* Nothing follows: what is left onto out, and u is as after init. */
void api_unwrap_end(struct api_unwrap *u, struct str *out);

#endif
