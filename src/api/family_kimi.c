/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi-K2: a block of calls as DeepSeek's later form has it, with tags of its own; in place of a
 * name stands the call's id, functions.NAME:NUMBER, numbered over the whole conversation from 0. */
#include <stdio.h>
#include <string.h>

#include "api/family.h"
#include "api/parse_internal.h"

static const char lead[] = "functions.";

/* What stands before the separator is an id. */
static void take_head(struct api_parse *p)
{
    size_t at = api_parse_white_run(p->head.p, p->head.n), k = sizeof lead - 1, end;
    const char *s = p->head.p + at;
    size_t n = p->head.n - at;
    while (n && api_parse_white(s[n - 1]))
        n--;
    for (end = n; end && s[end - 1] >= '0' && s[end - 1] <= '9';)
        end--;
    bool numbered = end < n && end > 0 && s[end - 1] == ':';
    end = numbered ? end - 1 : n;
    api_parse_clear(p, &p->id);
    if (numbered) str_put(&p->id, s, n);
    if (end < k || memcmp(s, lead, k) != 0) k = 0;
    if (end == k) {
        api_parse_give_up(p);
        return;
    }
    api_parse_begin_call(p, s + k, end - k);
    p->state = S_FENCE;
}

static bool is_id(const char *id)
{
    const char *colon = strrchr(id, ':');
    return colon && strncmp(id, lead, sizeof lead - 1) == 0 && colon[1] &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static void put_id(char *buf, size_t n, const struct json *name, int k)
{
    snprintf(buf, n, "%s%.*s:%d", lead, (int)BASE_MIN(name->n, (size_t)128), name->s, k);
}

static const struct api_call_form form = {.head = lead,
                                          .tail = ":",
                                          .before = "[0-9]{1,5} sl-sep ",
                                          .tag = T_CALLS,
                                          .n_tag = 5,
                                          .whole = "sl-call-begin sl-one sl-call-end",
                                          .open = "sl-begin ",
                                          .close = " sl-end",
                                          .not_text = "<|tool_call"};

const struct api_family api_family_kimi = {
    .name = "kimi",
    .parsers = "kimi_k2",
    .alias = "kimi",
    .reasoning = "kimi_k2",
    .place = 3,
    .tag = {[T_CALLS] = "<|tool_calls_section_begin|>",
            [T_CALLS_END] = "<|tool_calls_section_end|>",
            [T_CALL] = "<|tool_call_begin|>",
            [T_CALL_END] = "<|tool_call_end|>",
            [T_SEP] = "<|tool_call_argument_begin|>"},
    .marks = BIT(T_CALLS),
    .text_tags = BIT(T_CALLS) | BIT(T_CALLS_END) | BIT(T_CALL) | BIT(T_CALL_END),
    .cut_tags = BIT(T_CALLS) | BIT(T_CALL),
    .call_tag = T_CALL,
    .block = true,
    .head = take_head,
    .form = &form,
    .is_id = is_id,
    .put_id = put_id,
};
