/* SPDX-License-Identifier: Apache-2.0 */
/* Which of GGUF's pre-tokenizer names stands for the splits of a tokenizer: the one that cuts a
 * probe text into the same pieces. */
#include <stdio.h>
#include <string.h>

#include "tok/tok_internal.h"

/* Letters of many scripts and cases, marks, digits in runs, contractions, punctuation before and
 * inside words, white space of all kinds. */
static const char probe[] =
    "Hello, World! don't DON'T we'LL it's I'm you'd they've 'tis \"quoted\" a.b.c x_y-z $100.50 "
    "50% #tag @me (par) [br] {cu} <t/>\n"
    "1 12 123 1234 12345 1234567890 3.14 0x1F v2 2nd \t\ttabs  two   three    four \r\n\r\n\n  \n "
    "end  \n"
    "CamelCase HTTPServer iPhone ABCdef \xc3\x9c"
    "ber stra\xc3\x9f"
    "e na\xc3\xafve cafe\xcc\x81 \xce\x95\xce\xbb\xce\xbb\xce\xac\xce\xb4\xce\xb1 "
    "\xd0\x9c\xd0\xbe\xd1\x81\xd0\xba\xd0\xb2\xd0\xb0 "
    "\xe5\x8c\x97\xe4\xba\xac\xe6\x98\xaf\xe4\xb8\xad\xe5\x9b\xbd "
    "\xe3\x81\xb2\xe3\x82\x89\xe3\x82\xab\xe3\x82\xbf\xe3\x82\xab\xe3\x83\x8a\xe6\x9d\xb1 "
    "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 "
    "\xd8\xa7\xd9\x84\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a\xd8\xa9 "
    "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80 "
    "\xef\xbc\x81\xef\xbc\x9f\xe3\x80\x82\xe3\x80\x81 \xe2\x80\x9cx\xe2\x80\x9d \xe2\x80\x94 "
    "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xd9\xa1\xd9\xa2\xd9\xa3 "
    "\xc2\xb2\xc2\xbd \xe2\x85\xa7 a/b//c http://x.y/z?q=1&r=2 +-*/= ...!!!??? "
    "\xc2\xa0nb\xe2\x80\x83sp  for(i=0;i<n;++i){s+=a[i];}\n\n\tif x: pass  ";

static void close_steps(tok *t)
{
    for (int i = 0; i < t->n_step; i++)
        text_regex_close(t->step[i].re);
    t->n_step = t->n_norm = 0;
}

static bool same_pieces(const struct tok_pieces *a, const struct tok_pieces *b)
{
    return a->n == b->n && memcmp(a->v, b->v, a->n * sizeof *a->v) == 0;
}

static sl_status pieces(const tok *t, struct tok_cut *c, sl_err *err)
{
    return tok_pre_split(t, c, probe, sizeof probe - 1, err);
}

/* Can a name of GGUF stand for all that t does before merging? */
static bool nameable(const tok *t)
{
    for (int i = 0; i < t->n_step; i++)
        if (!t->step[i].re) return false;
    return !t->chars && t->n_norm <= 1 && (!t->n_norm || t->norm_step[0].kind == TOK_NORM_NFC);
}

sl_status tok_rule_name(const tok *t, char *name, size_t n, sl_err *err)
{
    struct tok_cut want, got;
    struct tok_rule r;
    text_match *m = NULL;
    tok other;
    bool found = false;
    if (t->chars)
        return SL_FAIL(err, UNSUPPORTED,
                       "a SentencePiece tokenizer is not converted: a folder stays a folder, a "
                       "GGUF file a GGUF file");
    memset(&other, 0, sizeof other);
    sl_status st = text_match_open(MEM_TOK, &m, err);
    tok_cut_init(&want, m);
    tok_cut_init(&got, m);
    if (!st) st = pieces(t, &want, err);
    for (int pass = 0; pass < 2 && !st && !found && nameable(t);
         pass++) /* the same flags first; then what differs in ignore_merges only */
        for (int i = 0; !st && !found && tok_rule_get(i, &r); i++) {
            size_t len = strcspn(r.names + 1, " ");
            if (r.nfc != (t->n_norm > 0) || (!pass && r.ignore_merges != t->ignore_merges))
                continue;
            st = tok_pre_named(&other, r.names + 1, len, err);
            if (!st) st = pieces(&other, &got, err);
            close_steps(&other);
            found = !st && same_pieces(want.out, got.out);
            if (found) snprintf(name, n, "%.*s", (int)len, r.names + 1);
        }
    tok_cut_fini(&want);
    tok_cut_fini(&got);
    text_match_close(m);
    if (st || found) return st;
    return SL_FAIL(err, UNSUPPORTED,
                   "tokenizer.json: its pre_tokenizer is none that GGUF has a name for");
}
