/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an open tokenizer. Built once by tok_hf.c or tok_gguf.c through the functions of
 * tok_build.c; read-only after that. */
#ifndef TOK_TOK_INTERNAL_H
#define TOK_TOK_INTERNAL_H

#include "text/json.h"
#include "text/regex.h"
#include "text/tmpl.h"
#include "tok/tok.h"

#define TOK_MAX_VOCAB (1 << 24) /* highest id + 1 */
#define TOK_MAX_ADDED 512       /* bytes of an added token */
#define TOK_MAX_STEP 16         /* pre-tokenizer steps */
#define TOK_NONE 0xffffffffu

enum {
    TOK_F_USED = 1,     /* not a hole */
    TOK_F_WORD = 2,     /* bytes come from the byte alphabet: can be made by merges */
    TOK_F_ADDED = 4,    /* looked for in raw text */
    TOK_F_SPECIAL = 8,  /* left out of plain text */
    TOK_F_CONTROL = 16, /* never recognised in what a user wrote */
    TOK_F_EOG = 32,
    TOK_F_LSTRIP = 64,
    TOK_F_RSTRIP = 128,
    TOK_F_SINGLE_WORD = 256,
    TOK_F_NORMALIZED = 512, /* looked for behind the normaliser */
};

struct tok_entry {
    const char *p; /* raw bytes, NUL-terminated */
    uint32_t n, flags;
};

/* Added tokens as a trie; node 0 is the root. */
struct tok_trie_node {
    uint32_t child, sibling; /* 0 = none */
    uint32_t id;             /* TOK_NONE = no token ends here */
    uint8_t byte;
};
struct tok_trie {
    struct tok_trie_node *node;
    uint32_t n, cap;
    uint32_t first[256]; /* the root's children; 0 = none */
};

enum tok_step_kind {
    TOK_STEP_ISOLATED,
    TOK_STEP_REMOVED,
    TOK_STEP_MERGE_PREV,
    TOK_STEP_MERGE_NEXT,
    TOK_STEP_CONTIGUOUS
};
struct tok_step {
    text_regex *re;
    enum tok_step_kind kind;
    bool invert;
};

struct tok_merge {
    uint32_t left, right; /* left == TOK_NONE: free slot */
    uint32_t rank, id;
};

struct tok {
    struct arena a; /* bytes, templates */
    struct tok_entry *v;
    int n_vocab;
    uint32_t *slot; /* bytes -> id of WORD tokens; TOK_NONE = free */
    uint32_t slot_mask;
    struct tok_merge *merge;
    uint32_t merge_mask, n_merge;
    uint32_t *rank_id;     /* rank -> what the merge makes */
    uint32_t byte_id[256]; /* TOK_NONE = not in the vocabulary */
    bool ignore_merges;
    bool nfc;
    size_t max_piece; /* so many bytes are at least one token; 0 = bytes may vanish */
    struct tok_trie raw, norm;
    struct tok_step step[TOK_MAX_STEP];
    int n_step;
    int32_t bos, eos;
    bool add_bos;
    const char *bos_text, *eos_text;
    struct tok_named tmpl[TOK_MAX_TEMPLATE];
    int n_tmpl;
};

/* ---- building (tok_build.c). Errors name what is wrong with the vocabulary; NOMEM. ---- */
sl_status tok_build_begin(tok *t, int n_vocab, uint64_t n_merge, sl_err *err) BASE_MUST_USE;
/* A vocabulary word in the byte alphabet (GPT-2's printable stand-ins for bytes); one that is not
 * wholly in it is kept as it is and can not be merged. */
sl_status tok_build_word(tok *t, int64_t id, const char *p, size_t n, sl_err *err) BASE_MUST_USE;
/* A token that is looked for in raw text. flags: TOK_F_SPECIAL and on. Its id may be a word of the
 * same text already. */
sl_status tok_build_added(tok *t, int64_t id, const char *p, size_t n, uint32_t flags,
                          sl_err *err) BASE_MUST_USE;
/* Index the words; after the last word, before the first merge. */
sl_status tok_build_index(tok *t, bool dup_ok, sl_err *err) BASE_MUST_USE;
/* The halves in the byte alphabet. i: number for messages. last_wins: of two merges of one pair. */
sl_status tok_build_merge(tok *t, uint32_t i, const char *l, size_t n_l, const char *r, size_t n_r,
                          bool last_wins, sl_err *err) BASE_MUST_USE;
/* Tries, ends of generation by their usual texts. */
sl_status tok_build_end(tok *t, sl_err *err) BASE_MUST_USE;
/* One more chat template; LIMIT over TOK_MAX_TEMPLATE. A name that is there already keeps its text.
 */
sl_status tok_build_template(tok *t, const char *name, const char *p, size_t n,
                             sl_err *err) BASE_MUST_USE;
const struct tok_named *tok_template_find(const tok *t, const char *name); /* "": the default */
uint32_t tok_word_find(const tok *t, const char *p, size_t n);
const struct tok_merge *tok_merge_find(const tok *t, uint32_t l, uint32_t r);
bool tok_valid(const tok *t, int64_t id);

/* ---- pre-tokenizers (tok_pre.c) ---- */
sl_status tok_pre_regex(tok *t, const char *pattern, size_t n, enum tok_step_kind kind, bool invert,
                        sl_err *err) BASE_MUST_USE;
sl_status tok_pre_json(tok *t, const struct json *j, sl_err *err) BASE_MUST_USE;
/* By llama.cpp's name. UNSUPPORTED names it. */
sl_status tok_pre_named(tok *t, const char *name, size_t n, sl_err *err) BASE_MUST_USE;

struct tok_piece {
    uint32_t begin, end;
};
struct tok_pieces {
    struct tok_piece *v; /* mem_free */
    size_t n, cap;
};
/* Split p[0..n) by all steps. a and b are workspaces; *out points to the one with the result. */
sl_status tok_pre_split(const tok *t, text_match *m, const char *p, size_t n, struct tok_pieces *a,
                        struct tok_pieces *b, struct tok_pieces **out, sl_err *err) BASE_MUST_USE;

/* ---- merging (tok_bpe.c) ---- */
struct tok_bpe {
    void *mem; /* workspace for long words */
    size_t cap;
};
sl_status tok_bpe_word(const tok *t, struct tok_bpe *w, const char *p, size_t n,
                       struct tok_ids *out, sl_err *err) BASE_MUST_USE;
void tok_bpe_fini(struct tok_bpe *w);
sl_status tok_ids_put(struct tok_ids *out, int32_t id, sl_err *err) BASE_MUST_USE;

/* ---- added tokens in text (tok_trie.c) ---- */
sl_status tok_trie_add(struct tok_trie *t, const char *p, size_t n, uint32_t id,
                       sl_err *err) BASE_MUST_USE;
void tok_trie_fini(struct tok_trie *t);
/* The longest token at p[0..n): its bytes, 0 = none. Control tokens only up to n_clean bytes (what
 * the template wrote). */
size_t tok_trie_match(const tok *t, const struct tok_trie *tr, const char *p, size_t n,
                      size_t n_clean, uint32_t *id);

/* ---- sources ---- */
sl_status tok_hf_open(const struct tok_files *f, tok *t, sl_err *err) BASE_MUST_USE;
sl_status tok_gguf_open(const io_model *m, tok *t, sl_err *err) BASE_MUST_USE;

#endif
