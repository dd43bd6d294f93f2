/* SPDX-License-Identifier: Apache-2.0 */
/* mtp_dump MODEL IDS OUT.f32: the logits [T - 1, V] of the MTP layer with f32 everywhere, for the
 * checks of quantised folders; IDS is a file of T token numbers with commas between them. */
#include <stdio.h>

#include "base/mem.h"
#include "../unit/mtp_run.h"

int main(int argc, char **argv)
{
    sl_err err = {0};
    int32_t ids[MTP_MAX_TOK + 1];
    int n = 0, n_vocab = 0;
    float *z = NULL;
    FILE *f = argc == 4 ? fopen(argv[2], "r") : NULL;
    if (!f) {
        fprintf(stderr, "mtp_dump MODEL IDS OUT.f32\n");
        return 2;
    }
    while (n <= MTP_MAX_TOK && fscanf(f, "%d,", &ids[n]) == 1)
        n++;
    fclose(f);
    if (n < 2) {
        fprintf(stderr, "mtp_dump: %s: no two numbers\n", argv[2]);
        return 2;
    }
    if (mtp_logits(argv[1], &(struct mtp_text){ids, n - 1, n, false, false}, &z, &n_vocab, &err)) {
        fprintf(stderr, "mtp_dump: %s\n", err.text);
        return 1;
    }
    f = fopen(argv[3], "wb");
    size_t want = (size_t)(n - 1) * (size_t)n_vocab,
           done = f ? fwrite(z, sizeof(float), want, f) : 0;
    bool ok = f && fclose(f) == 0 && done == want;
    mem_free(z);
    if (!ok) fprintf(stderr, "mtp_dump: %s: not written\n", argv[3]);
    return ok ? 0 : 1;
}
