/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over kept inputs, and packs and unpacks them.
 *
 *   fuzz_NAME PATH...             run every input of each path: a .pack file, a folder or a single
 * file; a path that is not there is skipped, but no input at all is a failure fuzz_pack --pack FILE
 * DIR     all files of DIR, in the order of their names, into FILE fuzz_pack --unpack FILE DIR the
 * reverse, named by number
 *
 * A pack is a row of (length as 4 bytes little-endian, bytes). */
#include <dirent.h>
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

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--pack") == 0) {
        pack(argv[2], argv[3]);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--unpack") == 0) {
        unpack(argv[2], argv[3]);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        run_path(argv[i], 0);
    printf("%ld inputs, all clean\n", n_run);
    return n_run > 0 ? 0 : 1;
}
