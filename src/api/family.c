/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for a family: by the name of an option, or by what a chat template writes. */
#include "api/family.h"

#include <string.h>

#include "api/api_internal.h"
#include "api/field.h"
#include "api/parse_internal.h"
#include "base/place.h"

_Static_assert(N_TAG <= 32, "api_tags has a bit for each");

const struct api_family api_family_none = {.name = "none"};

#define X(name) extern const struct api_family api_family_##name;
#include "api/rows.inc"
#undef X
static const struct api_family *const rows[] = {
#define X(name) &api_family_##name,
#include "api/rows.inc"
#undef X
};

/* The row that has i others before it. */
static const struct api_family *row(int i)
{
    int place[BASE_COUNT_OF(rows)];
    for (int k = 0; k < BASE_COUNT_OF(rows); k++)
        place[k] = rows[k]->place;
    return rows[base_placed(place, BASE_COUNT_OF(rows), i)];
}

const char *api_family_tag(const struct api_family *f, int tag)
{
    static const char *const usual[] = {[T_THINK] = API_THINK, [T_THINK_END] = API_THINK_END};
    return tag <= T_THINK_END && !f->tag[tag] ? usual[tag] : f->tag[tag];
}

bool api_family_ends(const char *text, size_t n, int tag)
{
    for (int i = 0; i < BASE_COUNT_OF(rows); i++)
        if (api_ends_with(text, n, api_family_tag(rows[i], tag))) return true;
    return false;
}

static bool is_one_of(const char *names, const char *name)
{
    return names && api_name_in(names, name);
}

const struct api_family *api_family_named(const char *name)
{
    if (strcmp(name, api_family_none.name) == 0) return &api_family_none;
    for (int i = 0; i < BASE_COUNT_OF(rows); i++)
        if (is_one_of(rows[i]->parsers, name) || is_one_of(rows[i]->alias, name)) return rows[i];
    return NULL;
}

static bool has_marks(const char *text, const struct api_family *f)
{
    for (int t = 0; t < N_TAG; t++)
        if ((f->marks & BIT(t)) && !strstr(text, api_family_tag(f, t))) return false;
    return f->marks != 0;
}

const struct api_family *api_family_shown(const char *text)
{
    for (int i = 0; i < BASE_COUNT_OF(rows) && text; i++) {
        const struct api_family *f = row(i);
        bool has_word = f->word && strstr(text, f->word) && (!f->beside || strstr(text, f->beside));
        if (has_marks(text, f) || has_word) return f;
    }
    return NULL;
}

const struct api_family *api_family_reasoning(const char *name)
{
    for (int i = 0; i < BASE_COUNT_OF(rows); i++)
        if (is_one_of(rows[i]->reasoning, name)) return rows[i];
    return NULL;
}

bool api_family_reasons(const char *name)
{
    return api_family_reasoning(name) || strcmp(name, "think") == 0;
}

void api_family_names(struct str *out, bool reasoning)
{
    str_puts(out, "auto, none");
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        const char *names = reasoning ? row(i)->reasoning : row(i)->parsers;
        if (names) str_puts(out, ", ");
        for (; names && *names; names++)
            if (*names == '|')
                str_puts(out, ", ");
            else
                str_putc(out, *names);
    }
}
