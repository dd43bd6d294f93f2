/* SPDX-License-Identifier: Apache-2.0 */
/* One model, one numeric form: every row of logits of every sequence must have the same bits
 * whatever the step that computes it looks like.
 *
 * bits MODEL ACTS KV [--quick | --brief] [--seed N] [--threads N] [--ones N]
 *
 * The reference is each sequence in one step of all its tokens, alone, with one thread. Compared
 * with it, row by row: steps of one token; steps of random composition in company, over scattered
 * blocks, with 1 to N threads (3); what a prefix of a sequence gives; prompts in pieces with kept
 * keys and values (MLA); and a model with a tap on it. Blocks are filled with NaN before each run.
 * Where the model has an MTP layer, its rows are compared as well; of half of the random steps it
 * makes its keys and values alone, and rows of each sequence's last token. Some sequences are all
 * prompt, others partly answer, so that both forms of MLA meet in a step.
 *
 * Prints one line: MODEL ACTS KV isa ISA rows N hash H brief B, H over the reference's bits, B over
 * those of the rows that --brief computes.
 * SL_CPU caps the instruction set; bits --isa prints which it is then. --quick: one thread count
 * and one random run; --brief, for emulated CPUs: nothing but the reference and that run, of 47
 * rows, and H is "-". --ones: in steps of one token but the last N of each sequence, what is before
 * them at once. Exit 1: some row differs, each kind said once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/model.h"

enum { SEQ = 5, LEN = 160, BLK = 16, LD = LEN / BLK + 1, N_BLK = SEQ * LD + 7, T_MAX = 512 };

/* Tokens of the sequences, and how many of them are prompt. Sequence 1 is a prefix of sequence 0;
 * prompts of more than 128 tokens have both forms of MLA. In brief: the first of two. */
static const int len_full[SEQ] = {150, 60, 70, 133, 9}, n_prompt[SEQ] = {140, 60, 33, 133, 1};
static const int len_brief[SEQ] = {0, 0, 38, 0, 9};

struct row {
    uint64_t main, mtp;
};

struct job {
    const char *path, *acts_name, *kv_name;
    enum dev_acts acts;
    enum dev_kv_type kv;
    int n_thread_max, n_vocab, n_bad, n_ones;
    bool quick, brief, entries; /* entries: the MTP layer's alone, of some steps */
    uint64_t rng;
    int32_t ids[SEQ][LEN + 1];
    struct row want[SEQ][LEN], got[SEQ][LEN];
    const int *len;
    uint64_t all, first; /* the reference's bits: of all rows, and of those in brief */
    io_model *io;
};

/* An open model with its device and cache. */
struct rig {
    dev *d;
    model *m;
    dev_kv *kv;
    int n_group;
};

static void must(sl_status st, const sl_err *err)
{
    if (!st) return;
    fprintf(stderr, "bits: %s\n", err->text);
    exit(2);
}

static int pick(struct job *j, int n)
{
    return (int)(rng_next(&j->rng) % (uint64_t)n);
}

static void rig_open(struct job *j, struct rig *r, int n_thread, bool keep)
{
    sl_err err;
    struct model_opts o = {.n_tok_max = T_MAX,
                           .n_seq_max = SEQ,
                           .n_ctx = LEN,
                           .blk_tok = BLK,
                           .n_logit_max = T_MAX,
                           .keep_bytes = keep ? (int64_t)64 << 20 : 0,
                           .kv = j->kv};
    *r = (struct rig){0};
    must(dev_open(NULL, &(struct dev_opts){.n_thread = n_thread, .acts = j->acts}, &r->d, &err),
         &err);
    must(model_open(j->io, r->d, &o, &r->m, &err), &err);
    struct dev_kv_shape s = model_kv_shape(model_config(r->m), NULL, j->kv, N_BLK, BLK);
    must(dev_kv_open(r->d, &s, &r->kv, &err), &err);
    r->n_group = s.n_group;
    j->n_vocab = model_config(r->m)->n_vocab;
}

static void rig_close(struct rig *r)
{
    model_close(r->m);
    dev_close(r->d);
}

static uint64_t row_hash(const struct job *j, const float *row)
{
    for (int i = 0; i < j->n_vocab; i++)
        if (!isfinite(row[i])) {
            fprintf(stderr, "bits: %s: a logit is not finite\n", j->path);
            exit(1);
        }
    return hash_bytes(row, (size_t)j->n_vocab * sizeof *row, 0);
}

/* How a run cuts sequences into steps. */
enum cut { CUT_WHOLE, CUT_ONES, CUT_RANDOM, CUT_PIECES };

static int piece(struct job *j, enum cut cut, int turn, int seq, int rest)
{
    switch (cut) {
    case CUT_WHOLE:
        return turn == seq ? rest : 0;
    case CUT_ONES:
        return turn % SEQ != seq ? 0 : rest > j->n_ones ? rest - j->n_ones : 1;
    case CUT_PIECES:
        return rest < 33 ? rest : 33;
    default:
        break;
    }
    int kind = pick(j, 4);
    return kind == 0 ? 0 : kind == 1 ? 1 : pick(j, 1 + pick(j, 100));
}

/* The MTP layer's keys and values of the step b's tokens; then b is the last token of each of its
 * sequences. */
static void entries_alone(struct rig *r, struct dev_step *b)
{
    static int32_t ids[SEQ], pos[SEQ], hidden[SEQ];
    static const int32_t one[SEQ + 1] = {0, 1, 2, 3, 4, 5};
    struct dev_step s = *b;
    struct model_rows none;
    sl_err err;
    s.pass = model_entries_pass(r->m, 0);
    s.n_row = 0;
    s.want = 0;
    must(model_launch(r->m, r->kv, &s, &err), &err);
    must(model_wait(r->m, &none, &err), &err);
    for (int q = 0; q < b->n_seq; q++) {
        hidden[q] = b->seq_tok0[q + 1] - 1;
        ids[q] = b->ids[hidden[q]];
        pos[q] = b->pos[hidden[q]];
    }
    b->ids = ids;
    b->pos = pos;
    b->hidden_row = hidden;
    b->seq_tok0 = one;
    b->n_tok = b->n_row = b->n_seq;
}

/* One step: n_new[s] tokens of each sequence from at[s] on. */
static void step(struct job *j, struct rig *r, const int32_t *table, const int *at,
                 const int *n_new, bool keep)
{
    static int32_t ids[T_MAX], next[T_MAX], pos[T_MAX], row[T_MAX], tok0[SEQ + 1];
    static int32_t blk[SEQ * LD], prompt[SEQ], seat[SEQ], of[T_MAX];
    struct dev_keep kept[SEQ];
    int n = 0, n_seq = 0;
    for (int s = 0; s < SEQ; s++) {
        if (n_new[s] == 0) continue;
        tok0[n_seq] = n;
        memcpy(blk + (ptrdiff_t)n_seq * LD, table + (ptrdiff_t)s * LD, LD * sizeof *blk);
        kept[n_seq] = (struct dev_keep){0, false};
        if (keep && at[s] < n_prompt[s])
            kept[n_seq] = (struct dev_keep){(uint64_t)s + 1, at[s] + n_new[s] >= n_prompt[s]};
        seat[n_seq] = (3 * s + 2) % SEQ;
        prompt[n_seq++] = n_prompt[s];
        for (int i = 0; i < n_new[s]; i++, n++) {
            ids[n] = j->ids[s][at[s] + i];
            next[n] = j->ids[s][at[s] + i + 1];
            pos[n] = at[s] + i;
            row[n] = n;
            of[n] = s;
        }
    }
    tok0[n_seq] = n;
    struct dev_step b = {.n_tok = n,
                         .n_seq = n_seq,
                         .ids = ids,
                         .pos = pos,
                         .seq_tok0 = tok0,
                         .blk = {blk, blk},
                         .ld_blk = LD,
                         .n_prompt = prompt,
                         .seat = seat,
                         .keep = keep ? kept : NULL,
                         .n_row = n,
                         .row_tok = row,
                         .want = DEV_WANT_LOGITS};
    struct model_rows out;
    sl_err err;
    bool mtp = model_n_mtp(r->m) > 0;
    must(model_launch(r->m, r->kv, &b, &err), &err);
    must(model_wait(r->m, &out, &err), &err);
    for (int i = 0; i < n; i++)
        j->got[of[i]][pos[i]].main = row_hash(j, out.logits + (int64_t)i * j->n_vocab);
    if (!mtp) return;
    b.ids = next;
    b.pass = 1;
    bool alone = j->entries && pick(j, 2);
    for (int i = 0; alone && i < n; i++) /* those that are not computed */
        j->got[of[i]][pos[i]].mtp = j->want[of[i]][pos[i]].mtp;
    if (alone) entries_alone(r, &b);
    must(model_launch(r->m, r->kv, &b, &err), &err);
    must(model_wait(r->m, &out, &err), &err);
    for (int i = 0; i < b.n_row; i++) {
        int t = alone ? b.hidden_row[i] : i;
        j->got[of[t]][pos[t]].mtp = row_hash(j, out.logits + (int64_t)i * j->n_vocab);
    }
}

static void play(struct job *j, struct rig *r, enum cut cut, bool keep)
{
    int32_t table[SEQ * LD], perm[N_BLK];
    int at[SEQ] = {0}, left = 0;
    for (int i = 0; i < N_BLK; i++) {
        int k = cut == CUT_RANDOM ? pick(j, i + 1) : i;
        perm[i] = perm[k];
        perm[k] = i;
        for (int g = 0; g < r->n_group; g++)
            dev_kv_poison(r->d, r->kv, g, i);
    }
    memcpy(table, perm, sizeof table);
    memset(j->got, 0, sizeof j->got);
    for (int s = 0; s < SEQ; s++)
        left += j->len[s];
    for (int turn = 0; left > 0; turn++) {
        int n_new[SEQ], total = 0;
        for (int s = 0; s < SEQ; s++) {
            int rest = j->len[s] - at[s];
            n_new[s] = piece(j, cut, turn, s, rest);
            if (n_new[s] > rest) n_new[s] = rest;
            if (n_new[s] > T_MAX - total) n_new[s] = T_MAX - total;
            total += n_new[s];
        }
        if (total == 0) continue;
        step(j, r, table, at, n_new, keep);
        for (int s = 0; s < SEQ; s++)
            at[s] += n_new[s];
        left -= total;
    }
}

static void compare(struct job *j, const char *what, int n_thread)
{
    int n = 0, n_mtp = 0, seq = 0, pos = 0;
    for (int s = SEQ - 1; s >= 0; s--)
        for (int i = j->len[s] - 1; i >= 0; i--) {
            n_mtp += j->got[s][i].mtp != j->want[s][i].mtp;
            if (j->got[s][i].main == j->want[s][i].main) continue;
            n++;
            seq = s;
            pos = i;
        }
    if (n + n_mtp == 0) return;
    fprintf(stderr,
            "bits: %s --acts %s --kv %s: %s, %d threads: %d rows differ, the first of them row %d "
            "of sequence %d; %d of the MTP layer\n",
            j->path, j->acts_name, j->kv_name, what, n_thread, n, pos, seq, n_mtp);
    j->n_bad++;
}

static void ignore_rows(void *user, const struct model_tap_rows *rows)
{
    (void)user;
    (void)rows;
}

/* Rows of sequence 1 are those of sequence 0: the same tokens, the same prompt. */
static void check_prefix(struct job *j)
{
    int n = 0, both = n_prompt[1] < n_prompt[0] ? n_prompt[1] : n_prompt[0];
    for (int i = 0; i < both; i++)
        n += j->want[0][i].main != j->want[1][i].main || j->want[0][i].mtp != j->want[1][i].mtp;
    if (n == 0) return;
    fprintf(stderr, "bits: %s --acts %s --kv %s: %d rows of a prefix differ\n", j->path,
            j->acts_name, j->kv_name, n);
    j->n_bad++;
}

static void run(struct job *j)
{
    struct rig r;
    sl_err err;
    rig_open(j, &r, 1, false);
    for (int s = 0; s < SEQ; s++)
        for (int i = 0; i <= len_full[s]; i++)
            j->ids[s][i] = s == 1 ? j->ids[0][i] : (int32_t)pick(j, j->n_vocab);
    play(j, &r, CUT_WHOLE, false);
    memcpy(j->want, j->got, sizeof j->want);
    j->all = hash_bytes(j->want, sizeof j->want, 0);
    for (int s = 0; s < SEQ; s++)
        j->first = hash_bytes(j->want[s], (size_t)len_brief[s] * sizeof j->want[s][0], j->first);
    if (!j->brief) {
        check_prefix(j);
        play(j, &r, CUT_ONES, false);
        compare(j, "steps of one token", 1);
        must(model_tap(r.m, ignore_rows, NULL, &err), &err);
        play(j, &r, CUT_RANDOM, false);
        compare(j, "with a tap", 1);
    }
    rig_close(&r);
    for (int t = j->quick ? j->n_thread_max : 1; t <= j->n_thread_max; t++) {
        rig_open(j, &r, t, true);
        for (int k = j->quick; k < 2; k++) {
            j->entries = true;
            play(j, &r, CUT_RANDOM, false);
            j->entries = false;
            compare(j, "in company", t);
        }
        if (!j->brief) {
            play(j, &r, CUT_PIECES, true);
            compare(j, "prompts in pieces, keys kept", t);
        }
        rig_close(&r);
    }
}

static int find(const char *name, const char *const *of, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, of[i]) == 0) return i;
    fprintf(stderr, "bits: %s: unknown\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    static struct job j = {.n_thread_max = 3, .rng = 1, .n_ones = LEN, .len = len_full};
    char all[17] = "-";
    static const char *const acts[] = {"auto", "f32", "bf16", "int8"};
    static const enum dev_acts acts_of[] = {DEV_ACTS_AUTO, DEV_ACTS_F32, DEV_ACTS_BF16,
                                            DEV_ACTS_INT8};
    static const char *const kv[] = {"f16", "bf16", "q8", "f32"};
    static const enum dev_kv_type kv_of[] = {DEV_KV_F16, DEV_KV_BF16, DEV_KV_Q8, DEV_KV_F32};
    sl_err err;
    if (argc == 2 && strcmp(argv[1], "--isa") == 0) return puts(cpu_isa_best(cpu_isa_mask())) < 0;
    if (argc < 4) {
        fprintf(stderr, "bits MODEL ACTS KV [--quick | --brief] [--seed N] [--threads N] "
                        "[--ones N]\n");
        return 2;
    }
    j.path = argv[1];
    j.acts_name = argv[2];
    j.kv_name = argv[3];
    j.acts = acts_of[find(argv[2], acts, 4)];
    j.kv = kv_of[find(argv[3], kv, 4)];
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            j.quick = true;
        } else if (strcmp(argv[i], "--brief") == 0) {
            j.quick = j.brief = true;
            j.len = len_brief;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            j.rng = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            j.n_thread_max = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--ones") == 0 && i + 1 < argc) {
            j.n_ones = atoi(argv[++i]);
        }
    }
    must(io_open(j.path, false, &j.io, &err), &err);
    run(&j);
    io_close(j.io);
    int n = 0;
    for (int s = 0; s < SEQ; s++)
        n += j.len[s];
    if (!j.brief) snprintf(all, sizeof all, "%016llx", (unsigned long long)j.all);
    printf("%s %s %s isa %s rows %d hash %s brief %016llx\n", j.path, j.acts_name, j.kv_name,
           cpu_isa_best(cpu_isa_mask()), n, all, (unsigned long long)j.first);
    return j.n_bad != 0;
}
