/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for a family: by the name of an option, or by what a chat template writes. */
#include "api/family.h"

#include <string.h>

#include "api/field.h"
#include "api/parse_internal.h"

const char *const api_parse_tag[N_TAG] = {
#define API_TAG(name, text) [T_##name] = text,
#include "api/family_list.h"
};

_Static_assert(N_TAG <= 64, "api_tags has a bit for each");

const struct api_family api_family_none = {.name = "none"};

static const struct api_family *const row[] = {
#define X(name) &api_family_##name,
#include "api/family_list.h"
};

static bool is_one_of(const char *names, const char *name)
{
    return names && api_name_in(names, name);
}

const struct api_family *api_family_named(const char *name)
{
    if (strcmp(name, api_family_none.name) == 0) return &api_family_none;
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (is_one_of(row[i]->parsers, name) || is_one_of(row[i]->alias, name)) return row[i];
    return NULL;
}

static bool has_all(const char *text, api_tags tags)
{
    for (int t = 0; t < N_TAG; t++)
        if ((tags & BIT(t)) && !strstr(text, api_parse_tag[t])) return false;
    return tags != 0;
}

const struct api_family *api_family_shown(const char *text)
{
    for (int i = 0; i < BASE_COUNT_OF(row) && text; i++)
        if (has_all(text, row[i]->marks) || (row[i]->word && strstr(text, row[i]->word)))
            return row[i];
    return NULL;
}

bool api_family_reasons(const char *name)
{
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (is_one_of(row[i]->reasoning, name)) return true;
    return strcmp(name, "think") == 0;
}

void api_family_names(struct str *out, bool reasoning)
{
    str_puts(out, "auto, none");
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        const char *names = reasoning ? row[i]->reasoning : row[i]->parsers;
        if (names) str_puts(out, ", ");
        for (; names && *names; names++)
            if (*names == '|')
                str_puts(out, ", ");
            else
                str_putc(out, *names);
    }
}
