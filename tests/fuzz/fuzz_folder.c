/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: io. Property: a folder with any files under the names that io reads opens, and then its
 * tensors can be read, or is refused with a text; nothing is leaked and no name outside the folder
 * is opened.
 *
 * Input: files in a row, each a byte that chooses its name from the list below, a u16 length, the
 * bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz_io.h"

static const char *const name[] = {
    "config.json",   "model.safetensors.index.json", "model.safetensors", "a.safetensors",
    "b.safetensors", "generation_config.json",       "tokenizer.json",    "hf_quant_config.json"};
static char dir[] = "/dev/shm/sluice-fuzz-XXXXXX";

static void clear(void)
{
    for (int i = 0; i < BASE_COUNT_OF(name); i++)
        if (unlink(name[i]) != 0) continue;
}

static void leave(void)
{
    clear();
    if (chdir("/") != 0 || rmdir(dir) != 0) fprintf(stderr, "%s was left behind\n", dir);
}

static void enter(void)
{
    static int done;
    if (done++) return;
    if (!mkdtemp(dir)) strcpy(dir, "/tmp/sluice-fuzz-XXXXXX");
    if (access(dir, F_OK) != 0 && !mkdtemp(dir)) abort();
    if (chdir(dir) != 0) abort();
    atexit(leave);
}

static void put(const char *file, const uint8_t *p, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n) abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enter();
    clear();
    while (size >= 3) {
        size_t n = data[1] | (size_t)data[2] << 8;
        if (n > size - 3) n = size - 3;
        put(name[data[0] % BASE_COUNT_OF(name)], data + 3, n);
        data += 3 + n;
        size -= 3 + n;
    }
    sl_err err = {0};
    io_model *m = NULL;
    int64_t before = mem_used(MEM_MISC);
    sl_status st = io_open(".", false, &m, &err);
    if (st != SL_OK && (m || !err.text[0] || mem_used(MEM_MISC) != before)) __builtin_trap();
    if (st == SL_OK) fuzz_tensors(m, NULL, 0);
    io_close(m);
    return 0;
}
