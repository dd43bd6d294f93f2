/* SPDX-License-Identifier: Apache-2.0 */
/* BPE over bytes or over code points: text <-> ids, from a folder's files or GGUF metadata; added
 * tokens; the streaming detokeniser. Read-only after open. */
#ifndef TOK_TOK_H
#define TOK_TOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "io/io.h"
#include "text/json.h"

typedef struct tok tok;

/* Errors: NOTFOUND (the model has no tokenizer), UNSUPPORTED (names what is not known: unigram,
 * a pre-tokenizer, ...), FORMAT, NOMEM. */
sl_status tok_open(const io_model *m, tok **out, sl_err *err) BASE_MUST_USE;
void tok_close(tok *t);
/* Has the GGUF file words of code points whose merges are listed, as a folder's tokenizer.json has
 * them (Gemma 4)? */
bool tok_lists_merges(const io_model *m);

/* A chat template by its name; "" and "default" are the one that is taken when none is named. */
struct tok_named {
    const char *name, *text;
    size_t n;
};
#define TOK_MAX_TEMPLATE 64

/* The end tokens that a model's configurations name (at most most of them), for models whose
 * tokenizer is not read: how many. */
int tok_end_ids(const io_model *m, int32_t *id, int most);

/* The same from the bytes of a Hugging Face folder's files; NULL = not there. */
struct tok_files {
    const char *tokenizer_json, *tokenizer_config, *special_tokens_map, *added_tokens,
        *chat_template_json, *chat_template_jinja, *tokenizer_model, *tiktoken_model, *vocab_json,
        *merges_txt;
    size_t n_tokenizer_json, n_tokenizer_config, n_special_tokens_map, n_added_tokens,
        n_chat_template_json, n_chat_template_jinja, n_tokenizer_model, n_tiktoken_model,
        n_vocab_json, n_merges_txt;
    const struct json *config, *generation_config;
    const struct tok_named *tmpl; /* additional_chat_templates/NAME.jinja */
    int n_tmpl;
};
/* From the files of a folder, as tok_open. Errors: NOTFOUND (no vocabulary), FORMAT and UNSUPPORTED
 * name the file and what in it, NOMEM. */
sl_status tok_open_files(const struct tok_files *f, tok **out, sl_err *err) BASE_MUST_USE;

enum { TOK_SPECIAL = 1, TOK_BOS = 2, TOK_EOS = 4 };
struct tok_ids {
    int32_t *id; /* mem_free */
    int n, cap;
    int max; /* more ids than this are LIMIT, as early as it is known; 0 = no limit */
};
/* Append the ids of text[0..n) to *out. Near-linear in n. TOK_SPECIAL: all added tokens are
 * recognised in the text; without it only those that are no control tokens (as their owners mean
 * them: normal vocabulary). Control tokens are the special ones, BOS, EOS, those that end a
 * generation, and every added token spelled <|...|> with either kind of bar, whatever its file
 * says: DeepSeek's <User> is "special": false. TOK_BOS puts in front what the model's files wish
 * there, else BOS; TOK_EOS puts after the text what they wish there. Errors: REQUEST (not UTF-8:
 * byte offset), LIMIT (over 2 GiB; over out->max; a pre-tokenizer that gives up), NOMEM. Threads:
 * any. */
sl_status tok_encode(const tok *t, const char *text, size_t n, int flags, struct tok_ids *out,
                     sl_err *err) BASE_MUST_USE;
/* The same for pieces of which some are the user's: control tokens are recognised only where spans
 * say so (text/tmpl.h). */
struct text_tmpl_spans;
sl_status tok_encode_spans(const tok *t, const char *text, size_t n,
                           const struct text_tmpl_spans *spans, struct tok_ids *out,
                           sl_err *err) BASE_MUST_USE;

/* Bytes of the longest token, where n bytes of text are at least n / this many; else 0. */
size_t tok_max_piece(const tok *t);
int tok_n_vocab(const tok *t); /* ids 0 .. n-1; holes have no bytes */
/* Bytes of one token (an added token: its text). NULL and 0 for a hole. Borrowed. */
const char *tok_bytes(const tok *t, int32_t id, int *n);
bool tok_is_special(const tok *t, int32_t id); /* control tokens: left out of plain text */
bool tok_is_chars(const tok *t);           /* words of code points (SentencePiece), not of bytes */
bool tok_is_eog(const tok *t, int32_t id); /* ends a generation */
bool tok_is_banned(const tok *t, int32_t id); /* its files want it never drawn */
int32_t tok_bos(const tok *t);                /* -1 = none */
int32_t tok_eos(const tok *t);
/* The model's own wishes for raw prompts: tokens before, tokens after. */
bool tok_add_bos(const tok *t);
bool tok_add_eos(const tok *t);
/* Are special tokens never recognised in text (split_special_tokens)? */
bool tok_splits_special(const tok *t);
/* The i-th named special token ("pad_token"); false past the last. Borrowed. */
struct tok_special {
    const char *name, *text;
    int32_t id; /* -1 = the text is no token */
};
/* The i-th row of what the files name, from 0 on; false past the last. */
bool tok_special_get(const tok *t, int i, struct tok_special *out);
/* Id of a token by its exact text; -1 = none. */
int32_t tok_find(const tok *t, const char *text);
/* The chat template's source for a conversation with or without tools: with tools the one named
 * tool_use, where there is one. NULL = none. Borrowed. Errors: NOTFOUND (there are templates, but
 * no default one: names them). */
sl_status tok_template_for(const tok *t, bool tools, const char **text, size_t *n,
                           sl_err *err) BASE_MUST_USE;
/* Template i of those that the model brings, from 0 on; NULL past the last. */
const struct tok_named *tok_template_at(const tok *t, int i);
const char *tok_bos_text(const tok *t); /* NULL = none */
const char *tok_eos_text(const tok *t);

/* Streaming detokeniser: give it ids one at a time, take whole code points. */
struct tok_stream {
    char pend[8]; /* an unfinished code point */
    int n_pend;
    bool front; /* what comes begins a text: spaces go that the reference's decoder leaves out there
                 */
    int n_space; /* so many went */
};
/* Append to out the bytes that id completes; special tokens only when special. Invalid bytes become
 * U+FFFD as soon as they can not be completed. Errors: REQUEST (no such id), NOMEM. */
sl_status tok_stream_put(const tok *t, struct tok_stream *s, int32_t id, bool special,
                         struct str *out, sl_err *err) BASE_MUST_USE;
/* Of the bytes of the next token, id: those that count, where front says that a text begins. */
void tok_stream_front(const tok *t, struct tok_stream *s, int32_t id, const char **p, int *n);
/* What is left at the end, as U+FFFD. Errors: NOMEM. */
sl_status tok_stream_end(struct tok_stream *s, struct str *out, sl_err *err) BASE_MUST_USE;

/* ---- for converting: a vocabulary as GGUF files hold it (tok_export.c) ---- */
enum tok_type {
    TOK_TYPE_NORMAL = 1,
    TOK_TYPE_UNKNOWN,
    TOK_TYPE_CONTROL,
    TOK_TYPE_USER,
    TOK_TYPE_UNUSED,
    TOK_TYPE_BYTE
};
/* Words of code points, as SentencePiece has them, which such a file can hold: with a mark for
 * spaces and tokens for bytes. UNSUPPORTED: of another kind. */
sl_status tok_is_scored(const tok *t, bool *out, sl_err *err) BASE_MUST_USE;
/* Their scores, [n_vocab] in the arena: merges in their order, 0 the first. */
sl_status tok_scores(const tok *t, struct arena *a, float **out, sl_err *err) BASE_MUST_USE;
/* The text of id as files spell it (words in the byte alphabet), appended to out (may be NULL), and
 * its type. UNUSED: it has none, and nothing is appended. */
enum tok_type tok_spell(const tok *t, int32_t id, struct str *out);
/* How an added token is looked for, beside its text: what such a file can not say. */
enum { TOK_RULE_LSTRIP = 1, TOK_RULE_RSTRIP = 2, TOK_RULE_WORD = 4, TOK_RULE_NORMALIZED = 8 };
int tok_rules_of(const tok *t, int32_t id);
/* Merges in their order, in the arena. Those of added tokens are left out: text never comes to
 * them, since added tokens are taken out of it before. */
struct tok_pair {
    int32_t left, right, made;
    uint32_t rank;
};
sl_status tok_pairs(const tok *t, struct arena *a, struct tok_pair **out, int *n,
                    sl_err *err) BASE_MUST_USE;

/* The pre-tokenizers that GGUF files name (tokenizer.ggml.pre), for converting: rule i, false past
 * the last. */
#define TOK_RULE_CLASSES 4
struct tok_rule {
    const char *names;   /* separated by one space, one at both ends; the first is the usual one */
    const char *step[8]; /* patterns in order, all Isolated; NULL after the last */
    bool nfc, ignore_merges;
    /* Of folders with tiktoken.model, or with vocab.json: a part of the name of the tokenizer's
     * class, or of the model's type. */
    const char *ranks[TOK_RULE_CLASSES], *vocab[TOK_RULE_CLASSES];
    int n_reserved; /* ranks: so many ids after the words are tokens, whether a file names them or
                       not */
};
bool tok_rule_get(int i, struct tok_rule *out);
/* The name of the rule that splits as t does. UNSUPPORTED when there is none. */
sl_status tok_rule_name(const tok *t, char *name, size_t n, sl_err *err) BASE_MUST_USE;

#endif
