/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of Harmony share. */
#ifndef API_FAMILY_HARMONY_H
#define API_FAMILY_HARMONY_H

#include "api/family.h"

/* Its tags. */
enum { T_H_START = T_OWN, T_H_END, T_H_MESSAGE, T_H_CHANNEL, T_H_CONSTRAIN, T_H_RETURN, T_H_CALL };
extern const struct api_family api_family_harmony;

/* family_harmony_form.c: root of struct api_message_form. */
void api_form_harmony_root(struct api *a, const struct api_parse *parse, enum api_calls calls,
                           const char *content, struct str *out);

#endif
