/* SPDX-License-Identifier: Apache-2.0 */
/* An answer's text as it streams, taken apart: content, reasoning, tool calls. What the pieces add
 * up to does not depend on how the text was cut. */
#ifndef API_SPLIT_H
#define API_SPLIT_H

#include "api/api.h"
#include "base/str.h"

struct api_sink {
    void *user;
    void (*text)(void *user, const char *p, size_t n);
    void (*reason)(void *user, const char *p, size_t n);
    void (*call)(void *user, int i, const char *name, size_t n_name); /* call number i begins */
    void (*args)(void *user, int i, const char *p, size_t n);         /* more of its arguments */
};

struct api_split_opts {
    const char *tool_parser, *reasoning_parser; /* "auto", "none", or a family */
    const char *arch, *template_text;           /* for "auto"; may be NULL */
    bool tools;                                 /* the request has tools that may be called */
    bool prompt_thinks;                         /* the prompt ended inside reasoning */
    int max_calls;                              /* later ones are left out; 0 = no limit */
};

struct api_split;
sl_status api_split_open(const struct api_split_opts *o, struct api_split **out,
                         sl_err *err) BASE_MUST_USE;
void api_split_close(struct api_split *s); /* NULL is legal */
/* More text; last: what was held back comes out. */
void api_split_feed(struct api_split *s, const char *p, size_t n, bool last,
                    const struct api_sink *sink);
/* Inside reasoning now. */
bool api_split_reasoning(const struct api_split *s);
/* A reasoning parser is at work. */
bool api_split_has_reasoning(const struct api_split *s);

#endif
