/* SPDX-License-Identifier: Apache-2.0 */
/* The form of an answer in Harmony (family_harmony.c): any number of messages of reasoning and of
 * words before calls (none where a call is forced), then one call, whose token ends the answer, or
 * the final message. */
#include "api/family_harmony.h"
#include "api/form.h"
#include "api/parse_internal.h"

static const char *text_of(int t)
{
    return api_family_tag(&api_family_harmony, t);
}

static void put_tag(api *a, struct str *out, const char *name, int t)
{
    str_printf(out, "%s ::= ", name);
    api_form_tag(a, out, text_of(t));
    str_putc(out, '\n');
}

/* A message's words and its end. */
static void put_words(api *a, struct str *out)
{
    struct str end;
    str_init(&end, MEM_REQUEST, 0);
    api_form_tag(a, &end, text_of(T_H_END));
    api_inherit(out, &end);
    api_form_without(out, "sl-words", text_of(T_H_END), true, str_c(&end));
    str_fini(&end);
}

void api_form_harmony_root(api *a, const struct api_parse *parse, enum api_calls calls,
                           const char *content, struct str *out)
{
    str_puts(out, "%root sl-root\nsl-root ::= ");
    if (api_parse_in_content(parse)) { /* the prompt has begun the final message */
        str_printf(out, "%s\n", content ? content : "sl-any");
    } else if (calls == API_CALLS_MUST) {
        str_puts(out, "sl-before* sl-calls\n");
    } else {
        str_printf(out, "sl-before* (%ssl-final %s)\n", calls == API_CALLS_MAY ? "sl-calls | " : "",
                   content ? content : "sl-any");
    }
    str_puts(out, "sl-any ::= [^\\x00]*\n"
                  "sl-final ::= sl-channel \"final\" sl-message\n"
                  "sl-before ::= sl-channel ");
    str_puts(out, calls == API_CALLS_MUST ? "\"analysis\"" : "(\"analysis\" | \"commentary\")");
    str_puts(out, " sl-message sl-words sl-start \"assistant\"\n"
                  "sl-calls ::= sl-channel \"commentary to=functions.\" sl-one\n");
    if (calls == API_CALLS_FREE) str_puts(out, "sl-one ::= \"\"\n");
    put_tag(a, out, "sl-channel", T_H_CHANNEL);
    put_tag(a, out, "sl-message", T_H_MESSAGE);
    put_tag(a, out, "sl-start", T_H_START);
    put_tag(a, out, "sl-constrain", T_H_CONSTRAIN);
    put_words(a, out);
}
