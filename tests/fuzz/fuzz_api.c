/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: api engine. Property: no request body crashes the reading of its fields and messages; what
 * is refused is REQUEST, LIMIT or NOMEM, with a text; messages that are taken give JSON that reads
 * back. Input: a body. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_api: %s\n", what);
    abort();
}

static void clean(sl_status st, const sl_err *err)
{
    check(st == SL_OK || st == SL_REQUEST || st == SL_LIMIT || st == SL_NOMEM, "another status");
    check(st == SL_OK || (err->text[0] && !strchr(err->text, '\n')), "an error without a line");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct json *body = NULL, *again = NULL;
    struct net_req r = {.key = -1};
    struct str s;
    sl_err err = {0};
    mem_arena_init(&r.arena, MEM_REQUEST, (size_t)64 << 20);
    str_init(&r.body, MEM_REQUEST, 0);
    str_init(&s, MEM_REQUEST, 0);
    str_put(&r.body, (const char *)data, size);
    for (int route = API_CHAT; route <= API_EMBED; route *= 2) {
        sl_status st = api_body_parse(NULL, &r, route, &body, &err);
        clean(st, &err);
        if (st) continue;
        clean(api_tools_check(body, &err), &err);
        for (int form = 0; form < 32; form++) {
            const struct api_put how = {.args_text = form & 1,
                                        .no_null = form & 2,
                                        .calls_plain = form & 4,
                                        .results_plain = form & 8,
                                        .tell_user = form & 1,
                                        .tell = form & 16 ? "tools" : NULL,
                                        .mark = form & 8 ? "~cut~ " : NULL,
                                        .family = api_family_named(form & 2 ? "hermes" : "json")};
            str_clear(&s);
            st = api_messages_put(&r.arena, &s, api_field(body, "messages"), &how, &err);
            clean(st, &err);
            if (st) continue;
            st = text_json_parse(&r.arena, "messages", str_c(&s), s.n, &again, &err);
            check(st == SL_OK || st == SL_LIMIT || st == SL_NOMEM,
                  "messages that do not read back");
        }
    }
    str_fini(&s);
    str_fini(&r.body);
    mem_arena_fini(&r.arena);
    return 0;
}
