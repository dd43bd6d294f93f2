/* SPDX-License-Identifier: Apache-2.0 */
/* Writing files so that a name is either the old content or the whole new one: temporary name,
 * fsync, rename, fsync of the folder. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/os_internal.h"

#define BUF_BYTES ((size_t)1 << 20)

static sl_status write_all(struct os_out *out, const uint8_t *p, uint64_t n, sl_err *err)
{
    while (n > 0) {
        ssize_t k = write(out->fd, p, n < (1u << 30) ? n : 1u << 30);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return os_fail_errno(k < 0 ? errno : ENOSPC, out->tmp, err);
        p += k;
        n -= (uint64_t)k;
    }
    return SL_OK;
}

/* A device, pipe or socket under the name is written to as it is: it can neither be replaced nor
 * synced. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static void open_tmp(struct os_out *out, size_t n_path)
{
    for (int i = 0; i < 100 && out->fd < 0; i++) { /* a crashed run may have left a name behind */
        const char *dash = i ? "-" : "";
        snprintf(out->tmp, n_path + 40, "%s.%ld%s%.0d.tmp", out->path, (long)getpid(), dash, i);
        out->fd = open(out->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        if (out->fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
}

sl_status os_out_open(const char *path, struct os_out *out, sl_err *err)
{
    void *p = NULL;
    size_t n = strlen(path);
    memset(out, 0, sizeof *out);
    out->fd = -1;
    sl_status st = mem_alloc(MEM_MISC, BUF_BYTES, &p, err);
    if (st != SL_OK) return st;
    out->buf = p;
    SL_TRY_OUT(mem_alloc(MEM_MISC, n + 1, &p, err));
    out->path = memcpy(p, path, n + 1);
    SL_TRY_OUT(mem_alloc(MEM_MISC, n + 40, &p, err));
    out->tmp = p;
    out->direct = is_special(path);
    if (out->direct) {
        memcpy(out->tmp, path, n + 1);
        out->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } else if (os_path_kind(path) == OS_DIR) {
        memcpy(out->tmp, path, n + 1);
        errno = EISDIR;
    } else {
        open_tmp(out, n);
    }
    if (out->fd < 0) {
        st = os_fail_errno(errno, path, err);
        goto out;
    }
    out->open = true;
out:
    if (st != SL_OK) os_out_abort(out);
    return st;
}

sl_status os_out_check(const char *path, sl_err *err)
{
    struct os_out out;
    if (is_special(path)) return SL_OK; /* its reader would see an end */
    sl_status st = os_out_open(path, &out, err);
    os_out_abort(&out);
    return st;
}

static int hold_back(struct os_out *out, const uint8_t *p, uint64_t n)
{
    if (out->direct) return 0;
    out->n_head = (int)BASE_MIN(n, (uint64_t)sizeof out->head);
    memcpy(out->head, p, (size_t)out->n_head);
    return out->n_head;
}

/* What does not wait in the buffer for the end. */
static sl_status spill(struct os_out *out, const uint8_t *p, uint64_t n, sl_err *err)
{
    static const uint8_t zero[sizeof out->head];
    if (n && !out->n_head) {
        int k = hold_back(out, p, n);
        SL_TRY(write_all(out, zero, (uint64_t)k, err));
        p += k;
        n -= (uint64_t)k;
    }
    return write_all(out, p, n, err);
}

sl_status os_out_write(struct os_out *out, const void *p, uint64_t n, sl_err *err)
{
    out->n += n;
    if (out->n_buf + n < BUF_BYTES) {
        if (n) memcpy(out->buf + out->n_buf, p, n);
        out->n_buf += n;
        return SL_OK;
    }
    SL_TRY(spill(out, out->buf, out->n_buf, err));
    out->n_buf = 0;
    if (n < BUF_BYTES) {
        memcpy(out->buf, p, n);
        out->n_buf = n;
        return SL_OK;
    }
    return spill(out, p, n, err);
}

static sl_status write_at(struct os_out *out, uint64_t at, const uint8_t *q, uint64_t n,
                          sl_err *err)
{
    while (n > 0) {
        ssize_t k = pwrite(out->fd, q, n < (1u << 30) ? n : 1u << 30, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return os_fail_errno(k < 0 ? errno : ENOSPC, out->tmp, err);
        q += k;
        at += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return SL_OK;
}

sl_status os_out_write_at(struct os_out *out, uint64_t at, const void *p, uint64_t n, sl_err *err)
{
    int k = at == 0 && n ? hold_back(out, p, n) : 0;
    return write_at(out, at + (uint64_t)k, (const uint8_t *)p + k, n - (uint64_t)k, err);
}

static sl_status sync_file(struct os_out *out, sl_err *err)
{
    int rc;
    do
        rc = out->direct ? 0 : fsync(out->fd);
    while (rc != 0 && errno == EINTR);
    return rc ? os_fail_errno(errno, out->tmp, err) : SL_OK;
}

/* Make the new name durable. Some file systems cannot sync a folder; that is no error. */
static void sync_folder(const char *path)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof dir) return;
    memcpy(dir, path, n);
    dir[n] = 0;
    int fd = open(n ? dir : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

sl_status os_out_commit(struct os_out *out, sl_err *err)
{
    sl_status st = SL_OK;
    SL_TRY_OUT(write_all(out, out->buf, out->n_buf, err));
    out->n_buf = 0;
    SL_TRY_OUT(sync_file(out, err));
    if (out->n_head) {
        SL_TRY_OUT(write_at(out, 0, out->head, (uint64_t)out->n_head, err));
        SL_TRY_OUT(sync_file(out, err));
    }
    int rc = close(out->fd);
    out->fd = -1;
    if ((rc != 0 && errno != EINTR) || (!out->direct && rename(out->tmp, out->path) != 0)) {
        st = os_fail_errno(errno, out->path, err);
        goto out;
    }
    out->open = false;
    if (!out->direct) sync_folder(out->path);
out:
    os_out_abort(out);
    return st;
}

void os_out_abort(struct os_out *out)
{
    if (out->open) {
        if (out->fd >= 0) close(out->fd);
        if (!out->direct) unlink(out->tmp);
    }
    mem_free(out->buf);
    mem_free(out->path);
    mem_free(out->tmp);
    memset(out, 0, sizeof *out);
    out->fd = -1;
}

sl_status os_write_file(const char *path, const void *p, uint64_t n, sl_err *err)
{
    struct os_out out;
    SL_TRY(os_out_open(path, &out, err));
    sl_status st = os_out_write(&out, p, n, err);
    if (st == SL_OK) return os_out_commit(&out, err);
    os_out_abort(&out);
    return st;
}

void os_out_sweep(const char *path)
{
    char dir[4096], full[4400], **names = NULL;
    int n = 0;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n_dir = slash ? (size_t)(slash - path) + 1 : 0, n_base = strlen(base);
    if (n_dir + 2 >= sizeof dir) return;
    memcpy(dir, slash ? path : "./", slash ? n_dir : 2);
    dir[slash ? n_dir : 2] = 0;
    if (os_list(dir, &names, &n, NULL)) return;
    for (int i = 0; i < n; i++) {
        char *end;
        const char *s = names[i];
        if (strncmp(s, base, n_base) != 0 || s[n_base] != '.') continue;
        long pid = strtol(s + n_base + 1, &end, 10);
        if (pid <= 0 || (strcmp(end, ".tmp") != 0 && *end != '-')) continue;
        size_t len = strlen(end);
        if (len < 4 || strcmp(end + len - 4, ".tmp") != 0) continue;
        if (kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        if (snprintf(full, sizeof full, "%s%s", dir, s) >= (int)sizeof full) continue;
        if (os_path_kind(full) == OS_DIR)
            os_dir_remove(full);
        else
            unlink(full);
    }
    os_list_free(names, n);
}
