/* SPDX-License-Identifier: Apache-2.0 */
/* What lies where a model file should: what downloads leave behind, archives, other programs'
 * files. Told from the first bytes, so that the refusal can say it. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/io_internal.h"
#include "text/utf8.h"

static const struct {
    uint64_t at;
    const char *magic;
    int n;
    const char *what;
} known[] = {
    {0, "version https://git-lfs", 23,
     "a git-lfs pointer, not the file that it stands for: `git lfs pull`, or download the file"},
    {0, "oid sha256:", 11, "a git-lfs pointer, not the file that it stands for"},
    {0, "\x1f\x8b", 2, "a gzip archive: unpack it"},
    {0, "PK\x03\x04", 4,
     "a zip archive, as PyTorch's files are: only .gguf and .safetensors are read"},
    {0,
     "\xfd"
     "7zXZ",
     5, "an xz archive: unpack it"},
    {0, "7z\xbc\xaf\x27\x1c", 6, "a 7z archive: unpack it"},
    {0, "BZh", 3, "a bzip2 archive: unpack it"},
    {0, "\x28\xb5\x2f\xfd", 4, "a zstd archive: unpack it"},
    {0, "Rar!", 4, "a rar archive: unpack it"},
    {257, "ustar", 5, "a tar archive: unpack it"},
    {0, "\x80\x02", 2, "a Python pickle, which is not read, since it can run code"},
    {0, "\x80\x04", 2, "a Python pickle, which is not read, since it can run code"},
    {0, "lmgg", 4,
     "a file of llama.cpp from before GGUF (2023), which is not read: convert it again"},
    {0, "fmgg", 4,
     "a file of llama.cpp from before GGUF (2023), which is not read: convert it again"},
    {0, "tjgg", 4,
     "a file of llama.cpp from before GGUF (2023), which is not read: convert it again"},
    {0, "\x89HDF", 4, "an HDF5 file, which is not read"},
    {0, "\xff\xfe", 2,
     "text in UTF-16 (it begins with the byte order mark FF FE): save it as UTF-8"},
    {0, "\xfe\xff", 2,
     "text in UTF-16 (it begins with the byte order mark FE FF): save it as UTF-8"},
};

/* Does it begin, after white space and a byte order mark, as pages do? */
static bool is_page(const uint8_t *p, uint64_t n)
{
    static const char *const tag[] = {"<!doctype", "<html", "<?xml", "<head", "<body"};
    size_t bom = text_utf8_bom(p, (size_t)n);
    p += bom;
    n -= bom;
    while (n > 0 && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++, n--;
    for (int i = 0; i < BASE_COUNT_OF(tag); i++) {
        size_t k = strlen(tag[i]);
        if (n >= k && strncasecmp((const char *)p, tag[i], k) == 0) return true;
    }
    return false;
}

const char *io_foreign(const void *bytes, uint64_t n)
{
    const uint8_t *p = bytes;
    for (int i = 0; i < BASE_COUNT_OF(known); i++)
        if (n >= known[i].at + (uint64_t)known[i].n &&
            memcmp(p + known[i].at, known[i].magic, (size_t)known[i].n) == 0)
            return known[i].what;
    return is_page(p, n) ? "a web page (HTML), not a file of a model: the download went wrong"
                         : NULL;
}

/* Its beginning, where it is text: "Entry not found". */
static int text_length(const uint8_t *p, uint64_t n)
{
    int len = 0;
    while ((uint64_t)len < n && len < 40 && p[len] >= 0x20 && p[len] < 0x7f)
        len++;
    return len >= 8 ? len : 0;
}

static bool is_zero(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

void io_foreign_text(const void *bytes, uint64_t n, char *buf, size_t cap)
{
    const char *what = io_foreign(bytes, n);
    int len = text_length(bytes, n);
    buf[0] = 0;
    if (what)
        snprintf(buf, cap, "%s", what);
    else if (len)
        snprintf(buf, cap, "text (\"%.*s\")", len, (const char *)bytes);
    else if (n >= 64 && is_zero(bytes, 64))
        snprintf(buf, cap, "zeros: the download did not end, or did not begin");
}
