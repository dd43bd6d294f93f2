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

#define TOK_MAX_SPECIAL 64 /* named special tokens */

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
    bool split_special; /* special tokens are never recognised in text */
    size_t max_piece;   /* so many bytes are at least one token; 0 = bytes may vanish */
    struct tok_trie raw, norm;
    struct tok_step step[TOK_MAX_STEP];
    int n_step;
    int32_t bos, eos;
    int32_t front[8], back[8]; /* what the files wish around raw text */
    int n_front, n_back;
    struct tok_special special[TOK_MAX_SPECIAL];
    int n_special;
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
/* A named special token ("pad_token"); bos_token and eos_token set BOS and EOS. id -1 = none. */
sl_status tok_build_special(tok *t, const char *name, const char *p, size_t n, int32_t id,
                            sl_err *err) BASE_MUST_USE;
/* id ends a generation. One that no file has a text for becomes a token without bytes; one outside
 * the vocabulary is passed over. */
void tok_build_eog(tok *t, int64_t id);
/* Before words, after words: a token of post-processing. Too many are LIMIT. */
sl_status tok_build_around(tok *t, bool front, int32_t id, sl_err *err) BASE_MUST_USE;
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

/* ---- added and special tokens of a folder (tok_join.c) ---- */
struct tok_join_name { /* one text */
    const char *text;
    size_t n;
    int64_t id, word; /* its id, and that which the vocabulary gives it; -1 = none */
    uint32_t flags;   /* TOK_F_SPECIAL and on */
    bool plain;       /* given as a special token's plain text */
};
struct tok_join_op { /* in the order in which the reference adds tokens */
    uint32_t name, flags;
    int64_t id; /* as its file has it; -1 = none */
    bool fixed; /* tokenizer.json's own: the id counts */
};
struct tok_join_special {
    const char *key, *text; /* text NULL = named, but null */
    size_t n;
    uint32_t flags;
    bool plain;
};
struct tok_join {
    struct arena *a;
    const struct json *list;                 /* added_tokens of tokenizer.json */
    const struct json *config, *map, *added; /* tokenizer_config.json and its companions */
    bool own_ids; /* no tokenizer.json: ids that added_tokens_decoder gives count */
    struct tok_join_name *name;
    struct tok_join_op *op;
    struct tok_join_special special[TOK_MAX_SPECIAL];
    uint32_t *slot, slot_mask, n_name, n_op;
    int n_special;
};
/* What all files say, in the reference's order. list to own_ids are given; NULL = not there. */
sl_status tok_join_read(struct tok_join *j, sl_err *err) BASE_MUST_USE;
/* A word of the vocabulary, as the files spell it. */
void tok_join_word(struct tok_join *j, const char *p, size_t n, int64_t id);
/* After all words: ids. n_word: words in the vocabulary; *top: the highest id, -1 = none. */
void tok_join_ids(struct tok_join *j, int64_t n_word, int64_t *top);
/* After tok_build_index: added tokens, named tokens, BOS and EOS. */
sl_status tok_join_build(const struct tok_join *j, tok *t, sl_err *err) BASE_MUST_USE;

/* ---- sources ---- */
struct tok_src { /* a folder's files, parsed; NULL = not there */
    const struct tok_files *f;
    const struct json *config, *map, *added; /* tokenizer_config.json and its companions */
    struct arena *a;                         /* until the tokenizer is open */
};
/* st, with the file's name before the message of err. */
sl_status tok_in_file(sl_status st, const char *name, sl_err *err) BASE_MUST_USE;
/* tokenizer.json */
sl_status tok_json_open(const struct tok_src *s, tok *t, sl_err *err) BASE_MUST_USE;
/* Ids of a vocabulary whose words end below n_word, with what is added up to top (-1 = none) and
 * the end tokens of the configurations: *n_vocab. */
sl_status tok_src_size(const struct tok_src *s, size_t n_token, int64_t top, int *n_vocab,
                       sl_err *err) BASE_MUST_USE;
sl_status tok_hf_open(const struct tok_files *f, tok *t, sl_err *err) BASE_MUST_USE;
sl_status tok_gguf_open(const io_model *m, tok *t, sl_err *err) BASE_MUST_USE;

#endif
