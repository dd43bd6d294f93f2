/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode normalisation form C. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

/* True when p (valid UTF-8) is certainly in NFC already. Text that is may still get false (text_nfc
 * then returns it unchanged): letters that have a decomposition are not looked into. */
bool text_nfc_quick(const char *p, size_t n);

/* Append the NFC of p[0..n), valid UTF-8, to out. Linear, whatever the marks. Errors: NOMEM, LIMIT
 * (as out's). */
sl_status text_nfc(const char *p, size_t n, struct str *out, sl_err *err) BASE_MUST_USE;

#endif
