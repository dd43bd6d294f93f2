/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over kept inputs, and packs and unpacks them.
 *
 * fuzz_NAME [--mutate N SEED] PATH...
 *     run every input of each path: a .pack file, a folder or a single file; a path that is not
 *     there is skipped, but no input at all is a failure. --mutate: then N more, changed at random:
 *     for many runs where there is no libFuzzer; the failing one is left in crash-NUMBER
 * fuzz_pack --pack FILE DIR     all files of DIR, in the order of their names, into FILE
 * fuzz_pack --unpack FILE DIR   the reverse, named by number
 *
 * A pack is a row of (length as 4 bytes little-endian, bytes). */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data;
    (void)size;
    fprintf(stderr, "fuzz_pack has no target to run\n");
    exit(1);
}

static long n_run;

/* Kept inputs that --mutate begins with, and the one that runs. */
#define INPUT_MAX 4096
static struct input {
    uint8_t *p;
    size_t n;
} kept[1 << 16], now;
static int n_kept;
static bool keeps;

static void die(const char *what, const char *path)
{
    fprintf(stderr, "replay: %s: %s\n", what, path);
    exit(1);
}

static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    uint8_t *p = NULL;
    size_t cap = 0, got = 0;
    do {
        *n += got;
        if (cap - *n < 65536 && !(p = realloc(p, cap = cap * 2 + 65536))) die("no memory", path);
        got = fread(p + *n, 1, cap - *n, f);
    } while (got);
    fclose(f);
    return p;
}

/* The input in a block of exactly its size, so that the sanitizer sees a read past the end. */
static void run(const uint8_t *p, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) die("no memory", "input");
    if (n) memcpy(copy, p, n);
    if (keeps && n <= INPUT_MAX && n_kept < (int)(sizeof kept / sizeof *kept)) {
        kept[n_kept].p = malloc(n ? n : 1);
        if (!kept[n_kept].p) die("no memory", "input");
        if (n) memcpy(kept[n_kept].p, p, n);
        kept[n_kept++].n = n;
    }
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    n_run++;
}

static size_t next_len(const uint8_t *p, size_t n, size_t at, const char *path)
{
    if (n - at < 4) die("cut pack", path);
    size_t len = p[at] | (size_t)p[at + 1] << 8 | (size_t)p[at + 2] << 16 | (size_t)p[at + 3] << 24;
    if (len > n - at - 4) die("cut pack", path);
    return len;
}

static void run_path(const char *path, int depth)
{
    struct stat st;
    if (stat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        struct dirent **list;
        int n = scandir(path, &list, NULL, alphasort);
        for (int i = 0; i < n; i++) {
            char sub[4096];
            snprintf(sub, sizeof sub, "%s/%s", path, list[i]->d_name);
            if (list[i]->d_name[0] != '.' && depth < 4) run_path(sub, depth + 1);
            free(list[i]);
        }
        if (n >= 0) free(list);
        return;
    }
    size_t n = 0, len = strlen(path);
    uint8_t *p = read_file(path, &n);
    if (!p) die("can not read", path);
    if (len > 5 && strcmp(path + len - 5, ".pack") == 0) {
        for (size_t at = 0; at < n;) {
            size_t k = next_len(p, n, at, path);
            run(p + at + 4, k);
            at += 4 + k;
        }
    } else {
        run(p, n);
    }
    free(p);
}

static void pack(const char *file, const char *dir)
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    FILE *out = n < 0 ? NULL : fopen(file, "wb");
    if (!out) die("can not write", file);
    for (int i = 0; i < n; i++) {
        char sub[4096];
        size_t k = 0;
        snprintf(sub, sizeof sub, "%s/%s", dir, list[i]->d_name);
        uint8_t *p = list[i]->d_name[0] == '.' ? NULL : read_file(sub, &k);
        if (p) {
            uint8_t head[4] = {(uint8_t)k, (uint8_t)(k >> 8), (uint8_t)(k >> 16),
                               (uint8_t)(k >> 24)};
            fwrite(head, 1, 4, out);
            fwrite(p, 1, k, out);
        }
        free(p);
        free(list[i]);
    }
    free(list);
    if (fclose(out) != 0) die("can not write", file);
}

static void unpack(const char *file, const char *dir)
{
    size_t n = 0;
    uint8_t *p = read_file(file, &n);
    if (!p) return;
    int i = 0;
    for (size_t at = 0; at < n; i++) {
        size_t k = next_len(p, n, at, file);
        char sub[4096];
        snprintf(sub, sizeof sub, "%s/%06d", dir, i);
        FILE *out = fopen(sub, "wb");
        if (!out) die("can not write", sub);
        fwrite(p + at + 4, 1, k, out);
        fclose(out);
        at += 4 + k;
    }
    free(p);
}

/* ---- inputs that are changed at random ---- */

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
    seed += 0x9e3779b97f4a7c15u;
    uint64_t x = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return n ? (x ^ x >> 31) % n : 0;
}

/* At a place, over what is there: a number of 1 to 8 bytes that lies at a border. */
static void put_number(uint8_t *p, size_t n)
{
    static const uint64_t at[] = {0,
                                  1,
                                  2,
                                  3,
                                  4,
                                  8,
                                  12,
                                  16,
                                  31,
                                  32,
                                  33,
                                  64,
                                  95,
                                  96,
                                  97,
                                  127,
                                  128,
                                  255,
                                  256,
                                  300,
                                  4096,
                                  65535,
                                  65536,
                                  0x7fffffff,
                                  0x80000000u,
                                  0xffffffffu,
                                  0x7fffffffffffffffu,
                                  0x8000000000000000u};
    uint64_t v = at[draw(sizeof at / sizeof *at)] + draw(3) - 1;
    size_t size = (size_t)1 << draw(4), i = draw(n);
    if (draw(2)) i &= ~(size - 1);
    for (size_t k = 0; k < size && i + k < n; k++)
        p[i + k] = (uint8_t)(v >> 8 * k);
}

/* Bytes [i, i + k) of p [n] become m others. Room: INPUT_MAX. */
static size_t splice(uint8_t *p, size_t n, size_t i, size_t k, const struct input *by)
{
    size_t from = draw(by->n + 1), m = draw(by->n - from + 1);
    if (n - k + m > INPUT_MAX) m = INPUT_MAX - (n - k);
    memmove(p + i + m, p + i + k, n - i - k);
    memcpy(p + i, by->p + from, m);
    return n - k + m;
}

static size_t change(uint8_t *p, size_t n)
{
    size_t i = draw(n + 1), k = draw(n - i + 1);
    switch (n ? draw(7) : 6) {
    case 0:
        p[draw(n)] ^= (uint8_t)(1u << draw(8));
        return n;
    case 1:
        p[draw(n)] = (uint8_t)draw(256);
        return n;
    case 2:
        p[draw(n)] += (uint8_t)(draw(9) - 4);
        return n;
    case 3:
        put_number(p, n);
        return n;
    case 4:
        return i; /* cut short */
    case 5:
        memmove(p + i, p + i + k, n - i - k);
        return n - k;
    default:
        return splice(p, n, i, draw(2) * k, &kept[draw((uint64_t)n_kept)]);
    }
}

static void leave(int sig)
{
    char name[48];
    snprintf(name, sizeof name, "crash-%ld", n_run);
    FILE *f = fopen(name, "wb");
    if (f) {
        fwrite(now.p, 1, now.n, f);
        fclose(f);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static void mutate(long n)
{
    static uint8_t work[INPUT_MAX];
    keeps = false;
    now.p = work;
    signal(SIGABRT, leave); /* sanitizers end by it, too, with abort_on_error=1 */
#ifndef __SANITIZE_ADDRESS__ /* which says where */
    signal(SIGSEGV, leave);
#endif
    for (long i = 0; i < n && n_kept; i++) {
        const struct input *of = &kept[draw((uint64_t)n_kept)];
        memcpy(work, of->p, of->n);
        now.n = of->n;
        for (uint64_t k = 1 + draw(4); k > 0; k--)
            now.n = change(work, now.n);
        run(work, now.n);
        if ((i + 1) % 1000000 == 0) printf("%ld\n", n_run), fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    bool changes = argc > 4 && strcmp(argv[1], "--mutate") == 0;
    if (argc == 4 && strcmp(argv[1], "--pack") == 0) {
        pack(argv[2], argv[3]);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--unpack") == 0) {
        unpack(argv[2], argv[3]);
        return 0;
    }
    keeps = changes;
    if (changes) seed = strtoull(argv[3], NULL, 0);
    for (int i = changes ? 4 : 1; i < argc; i++)
        run_path(argv[i], 0);
    if (changes) mutate(strtol(argv[2], NULL, 0));
    printf("%ld inputs, all clean\n", n_run);
    return n_run > 0 ? 0 : 1;
}
