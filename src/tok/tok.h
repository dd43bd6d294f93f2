/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE: text <-> ids, from tokenizer.json or GGUF metadata; added tokens; the streaming detokeniser. Read-only after open. */
#ifndef TOK_TOK_H
#define TOK_TOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "io/io.h"

typedef struct tok tok;

/* Errors: NOTFOUND (the model has no tokenizer), UNSUPPORTED (names the kind: SentencePiece, an unknown pre-tokenizer, ...), FORMAT, NOMEM. */
sl_status tok_open(const io_model *m, tok **out, sl_err *err) BASE_MUST_USE;
void tok_close(tok *t);

enum { TOK_SPECIAL = 1, TOK_BOS = 2 };
struct tok_ids {
    int32_t *id; /* mem_free */
    int n, cap;
};
/* Append the ids of text[0..n) to *out. Linear in n. TOK_SPECIAL: added tokens are recognised in the text; without it only those added tokens that
 * are neither special nor control tokens are (as their owners mean them: normal vocabulary).
 * Errors: REQUEST (not UTF-8: byte offset), NOMEM. Threads: any. */
sl_status tok_encode(const tok *t, const char *text, size_t n, int flags, struct tok_ids *out,
                     sl_err *err) BASE_MUST_USE;
/* The same for pieces of which some are the user's: control tokens are recognised only where spans say so (text/tmpl.h). */
struct text_tmpl_span;
sl_status tok_encode_spans(const tok *t, const char *text, size_t n,
                           const struct text_tmpl_span *span, int n_span, struct tok_ids *out,
                           sl_err *err) BASE_MUST_USE;

int tok_n_vocab(const tok *t);                 /* ids 0 .. n-1; holes have no bytes */
/* Bytes of one token (an added token: its text). NULL and 0 for a hole. Borrowed. */
const char *tok_bytes(const tok *t, int32_t id, int *n);
bool tok_is_special(const tok *t, int32_t id); /* control tokens: left out of plain text */
bool tok_is_eog(const tok *t, int32_t id);     /* ends a generation */
int32_t tok_bos(const tok *t);                 /* -1 = none */
int32_t tok_eos(const tok *t);
bool tok_add_bos(const tok *t);                /* the model's own wish for raw prompts */
/* Id of a token by its exact text; -1 = none. */
int32_t tok_find(const tok *t, const char *text);
/* The chat template's source, NULL = none. */
const char *tok_template(const tok *t, size_t *n);
const char *tok_bos_text(const tok *t); /* NULL = none */
const char *tok_eos_text(const tok *t);

/* Streaming detokeniser: give it ids one at a time, take whole code points. */
struct tok_stream {
    char pend[8]; /* an unfinished code point */
    int n_pend;
};
/* Append to out the bytes that id completes; special tokens only when special. Invalid bytes become U+FFFD as soon as they can not be completed. */
sl_status tok_stream_put(const tok *t, struct tok_stream *s, int32_t id, bool special,
                         struct str *out, sl_err *err) BASE_MUST_USE;
/* What is left at the end, as U+FFFD. */
sl_status tok_stream_end(struct tok_stream *s, struct str *out, sl_err *err) BASE_MUST_USE;

#endif
