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
#define TOK_MAX_NORM 8          /* normaliser steps */
#define TOK_MAX_SPLIT 1024      /* bytes of a word whose halves are looked for */
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
    TOK_F_NORMALIZED = 512, /* looked for after the normaliser */
    TOK_F_BANNED = 2048,    /* never drawn */
    TOK_F_UNUSED = 1024,    /* merges pass through it, but it is spelled by its halves */
};

struct tok_entry {
    const char *p; /* raw bytes, NUL-terminated */
    const char
        *key; /* how merges and texts spell it: other than p where a mark stands for spaces */
    uint32_t n, n_key, flags;
};

struct tok_text {
    const char *p;
    uint32_t n;
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
    TOK_STEP_CONTIGUOUS,
    TOK_STEP_SPACE, /* a space in front of each piece that has none (ByteLevel) */
    TOK_STEP_MARK   /* spaces become marks, and a mark in front (Metaspace) */
};
enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS };
struct tok_step {
    text_regex *re; /* NULL for the last two kinds */
    enum tok_step_kind kind;
    bool invert;
    enum tok_prepend prepend; /* MARK */
    bool split;               /* MARK: a piece begins at every mark */
};

enum tok_norm_kind { TOK_NORM_NFC, TOK_NORM_PREPEND, TOK_NORM_REPLACE, TOK_NORM_SPM };
struct tok_norm {
    enum tok_norm_kind kind;
    const char *a, *b; /* PREPEND a; REPLACE a by b */
    size_t n_a, n_b;
};
/* SentencePiece's normaliser. */
struct tok_spm {
    const uint32_t *unit; /* its map of characters: a double array, and texts that end in NUL */
    const char *text;
    uint32_t n_unit, n_text;
    enum tok_prepend prefix;
    bool squeeze; /* runs of spaces become one, none at both ends */
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
    bool chars; /* merges begin with code points, not with bytes */
    bool fuse_unk;
    bool byte_words;  /* words <0x0A> stand for bytes that the vocabulary lacks */
    bool byte_decode; /* and are those bytes in answers */
    bool by_word;     /* no token goes on after a word: text may be cut before each run of marks */
    bool tied;        /* of several merges of one rank the leftmost comes first: no rank_id */
    int32_t unk;      /* for what has no token; -1 = none */
    uint32_t fallback[256]; /* tokens of single bytes, <0x0A>; TOK_NONE = none */
    char mark[8];           /* stands for a space in words; "" = none does */
    int n_entry;            /* n_vocab, and symbols that merges pass through and no token is */
    struct tok_norm norm_step[TOK_MAX_NORM];
    int n_norm;
    struct tok_spm spm;
    int strip;                 /* spaces that decoding leaves out in front of a text; -1 = all */
    bool strip_first;          /* every mark of the first token, and no more */
    struct tok_text *first;    /* strip_first: [n_vocab] tokens as they begin an answer */
    bool split_special;        /* special tokens are never recognised in text */
    size_t max_piece;          /* so many bytes are at least one token; 0 = bytes may vanish */
    struct tok_trie raw, norm; /* added tokens, of the text as it is and as it is normalised */
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
/* The sign that stands for a space in words. Two that differ are UNSUPPORTED. */
sl_status tok_build_mark(tok *t, const char *mark, sl_err *err) BASE_MUST_USE;
/* The same for a word that is raw bytes; it can be merged. */
sl_status tok_build_bytes(tok *t, int64_t id, const char *p, size_t n, sl_err *err) BASE_MUST_USE;
/* The same for a word of code points, in which the mark stands for a space. <0x0A> is a byte. */
sl_status tok_build_chars(tok *t, int64_t id, const char *p, size_t n, sl_err *err) BASE_MUST_USE;
/* Index the words; after the last word, before the first merge. */
void tok_build_slot(tok *t, uint32_t id); /* one word more, the first of its spelling */
sl_status tok_build_index(tok *t, bool dup_ok, sl_err *err) BASE_MUST_USE;
/* The halves of a merge, in the byte alphabet. */
struct tok_halves {
    const char *l;
    size_t n_l;
    const char *r;
    size_t n_r;
};
/* i: number for messages. last_wins: of two merges of one pair. */
sl_status tok_build_merge(tok *t, uint32_t i, struct tok_halves of, bool last_wins,
                          sl_err *err) BASE_MUST_USE;
/* Every way to cut a word into two is a merge, of the word's own rank: rank[id], TOK_NONE for
 * words that no merge makes. After tok_build_index. */
sl_status tok_build_splits(tok *t, const uint32_t *rank, sl_err *err) BASE_MUST_USE;
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
int32_t tok_special_id(const tok *t, const char *name); /* -1 = none */
/* id ends a generation. One that no file has a text for becomes a token without bytes; one outside
 * the vocabulary is passed over. */
void tok_build_eog(tok *t, int64_t id);
void tok_build_ban(tok *t, int64_t id); /* never drawn; outside the vocabulary: passed over */
/* Before words, after words: a token of post-processing. Too many are LIMIT. */
sl_status tok_build_around(tok *t, bool front, int32_t id, sl_err *err) BASE_MUST_USE;
uint32_t tok_word_find(const tok *t, const char *p, size_t n);
const struct tok_merge *tok_merge_find(const tok *t, uint32_t l, uint32_t r);
bool tok_valid(const tok *t, int64_t id);
/* The text of an added token as its file has it, NUL-terminated; n (may be NULL): its bytes. */
const char *tok_text_of(const tok *t, int32_t id, size_t *n);

/* ---- pre-tokenizers (tok_pre.c) ---- */
sl_status tok_pre_regex(tok *t, const char *pattern, size_t n, enum tok_step_kind kind, bool invert,
                        sl_err *err) BASE_MUST_USE;
/* pre_tokenizer of tokenizer.json. *bytes: it ends in ByteLevel. */
sl_status tok_pre_json(tok *t, const struct json *j, bool *bytes, sl_err *err) BASE_MUST_USE;
sl_status tok_pre_space(tok *t, sl_err *err) BASE_MUST_USE; /* a space in front of each piece */

/* ---- rules by name (tok_named.c) ---- */
extern const char tok_gpt2[]; /* GPT-2's pattern */
sl_status tok_rule_use(tok *t, const struct tok_rule *r, sl_err *err) BASE_MUST_USE;
/* By llama.cpp's name. UNSUPPORTED names it. */
sl_status tok_pre_named(tok *t, const char *name, size_t n, sl_err *err) BASE_MUST_USE;
struct tok_src;
/* The rule of a folder's tokenizer by its class, which its files name (their code is not read), or
 * without one by the type of the model. ranks: of tiktoken.model, else of vocab.json. UNSUPPORTED
 * names file and class. */
sl_status tok_rule_of_class(const struct tok_src *s, const char *file, bool ranks,
                            const struct tok_rule **out, sl_err *err) BASE_MUST_USE;

struct tok_piece {
    uint32_t begin, end;
};
struct tok_pieces {
    struct tok_piece *v; /* mem_free */
    size_t n, cap;
};
/* A text being cut. */
struct tok_cut {
    text_match *m;
    struct tok_pieces v[2], *out; /* out: the pieces, of p */
    struct str text[2];           /* what steps made of the text */
    const char *p;
    size_t zero; /* so many bytes of p stand where all that is encoded begins */
};
void tok_cut_init(struct tok_cut *c, text_match *m);
void tok_cut_fini(struct tok_cut *c); /* without m */
/* Cut p[0..n) by all steps: c->out, pieces of c->p. */
sl_status tok_pre_split(const tok *t, struct tok_cut *c, const char *p, size_t n,
                        sl_err *err) BASE_MUST_USE;

/* ---- normalisers (tok_norm.c) ---- */
struct tok_norm_state { /* of one text, whose parts are normalised one after the other */
    /* bytes of what is to come, and of out, that stand where all that is encoded begins: its first
     * code point, and what was put before that */
    size_t zero, out_zero;
    bool head, begun, space; /* head: there are such bytes */
};
/* Append what step k makes of a part of a text to out. s: zero and head are given before the first,
 * all else is 0. */
sl_status tok_norm_part(const tok *t, int k, struct tok_norm_state *s, struct tok_text in,
                        struct str *out, sl_err *err) BASE_MUST_USE;
/* After the last part. */
void tok_norm_end(const tok *t, int k, const struct tok_norm_state *s, struct str *out);
/* All steps on the text of an added token. */
sl_status tok_norm_text(const tok *t, const char *p, size_t n, struct str *out,
                        sl_err *err) BASE_MUST_USE;
sl_status tok_norm_add(tok *t, enum tok_norm_kind kind, const struct json *a, const struct json *b,
                       sl_err *err) BASE_MUST_USE;
/* normalizer of tokenizer.json. UNSUPPORTED names what is not known. */
sl_status tok_norm_json(tok *t, const struct json *j, sl_err *err) BASE_MUST_USE;
/* The map of characters of a SentencePiece model; p must be 4-byte aligned and stay. */
sl_status tok_norm_charsmap(tok *t, const char *p, size_t n, sl_err *err) BASE_MUST_USE;

/* ---- merging (tok_bpe.c) ---- */
struct tok_bpe {
    void *mem; /* workspace for long words */
    size_t cap;
};
sl_status tok_bpe_word(const tok *t, struct tok_bpe *w, const char *p, size_t n,
                       struct tok_ids *out, sl_err *err) BASE_MUST_USE;
void tok_bpe_fini(struct tok_bpe *w);
/* Ids of a code point (n bytes) that the vocabulary lacks: bytes, the unknown token, or none. */
size_t tok_bpe_unknown(const tok *t, const char *p, size_t n, uint32_t *id);
/* Where the best merge that makes e cuts it; 0 = none does. */
size_t tok_bpe_cut(const tok *t, const struct tok_entry *e);
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
bool tok_join_has(const struct tok_join *j, const char *p, size_t n); /* a file names this text */
/* After tok_build_index: added tokens, named tokens, BOS and EOS. */
sl_status tok_join_build(const struct tok_join *j, tok *t, sl_err *err) BASE_MUST_USE;

struct tok_src;
/* ---- keys of files that nobody reads (tok_keys.c). UNSUPPORTED names one that could matter. ----
 */
sl_status tok_keys_json(const struct json *j, sl_err *err) BASE_MUST_USE; /* tokenizer.json */
/* An added token of whatever file; what: the list it is in. */
sl_status tok_keys_token(const struct json *token, const char *what, sl_err *err) BASE_MUST_USE;
/* tokenizer_config.json beside the opened vocabulary: also where they say different things. */
sl_status tok_keys_config(const struct tok_src *s, const tok *t, sl_err *err) BASE_MUST_USE;
sl_status tok_keys_gguf(const io_model *m, sl_err *err) BASE_MUST_USE; /* tokenizer.* */

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
/* model.vocab: every word to join; *top: the highest id. */
sl_status tok_json_words(const struct json *vocab, struct tok_join *join, int64_t *top,
                         sl_err *err) BASE_MUST_USE;
/* tokenizer.model; tiktoken.model; vocab.json with merges.txt */
sl_status tok_spm_open(const struct tok_src *s, tok *t, sl_err *err) BASE_MUST_USE;
sl_status tok_ranks_open(const struct tok_src *s, tok *t, sl_err *err) BASE_MUST_USE;
bool tok_ranks_like(const char *p, size_t n); /* is its first line one of tiktoken.model? */
sl_status tok_vocab_open(const struct tok_src *s, tok *t, sl_err *err) BASE_MUST_USE;
/* Merges of SentencePiece: the higher score first, of one score the leftmost. merged: words that
 * merges make. After tok_build_index. */
sl_status tok_spm_merges(tok *t, struct arena *a, const float *score, const bool *merged,
                         sl_err *err) BASE_MUST_USE;
/* Ids of a vocabulary whose words end below n_word, with what is added up to top (-1 = none) and
 * the end tokens of the configurations: *n_vocab. */
sl_status tok_src_size(const struct tok_src *s, size_t n_token, int64_t top, int *n_vocab,
                       sl_err *err) BASE_MUST_USE;
sl_status tok_hf_open(const struct tok_files *f, tok *t, sl_err *err) BASE_MUST_USE;
sl_status tok_gguf_open(const io_model *m, tok *t, sl_err *err) BASE_MUST_USE;

#endif
