/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of Harmony share. */
#ifndef API_FAMILY_HARMONY_H
#define API_FAMILY_HARMONY_H

#include "api/family.h"

/* family_harmony_form.c: root of struct api_message_form. */
void api_form_harmony_root(struct api *a, const struct api_parse *parse, enum api_calls calls,
                           const char *content, struct str *out);

#endif
