/* SPDX-License-Identifier: Apache-2.0 */
/* Linux: files, mapping, directories, topology. With base/mem.c the only place of system calls
 * below net. */
#ifndef OS_OS_H
#define OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A whole regular file mapped read-only. */
struct os_map {
    const uint8_t *data;
    uint64_t size;
    int64_t mtime_ns;
    int fd; /* kept for os_map_evict; owned */
};

/* Errors: NOTFOUND, IO, FORMAT (not a regular file: names what it is; empty files map with size 0
 * and data non-NULL). FIFOs, devices and symlink loops are refused at once, without blocking. */
sl_status os_map_open(const char *path, struct os_map *out, sl_err *err) BASE_MUST_USE;
/* Memory of n bytes or more that repeats: byte i is byte i + every, which is a multiple of a page,
 * and takes `every` bytes once. It begins as zeros; *fill is its first `every` bytes, for writing.
 * os_map_close gives it back. Errors: NOMEM. */
sl_status os_map_repeat(uint64_t every, uint64_t n, struct os_map *out, void **fill,
                        sl_err *err) BASE_MUST_USE;
void os_map_close(struct os_map *m);
/* Read-ahead advice for [offset, offset + n). */
void os_map_will_need(const struct os_map *m, uint64_t offset, uint64_t n);
/* Parts of it are read, with holes: what is touched is read and nothing beside it, so say before
 * what will be needed. False: as at first, with as much after it as the system likes. */
void os_map_parts(const struct os_map *m, bool parts);
/* The pages of [offset, offset + n) are not needed any more (they can be read again): keeps RSS
 * down while weights are packed. */
void os_map_drop(const struct os_map *m, uint64_t offset, uint64_t n);
/* os_map_drop, and out of the page cache too (unless another process maps them): the next use
 * reads the disk. */
void os_map_evict(const struct os_map *m, uint64_t offset, uint64_t n);
/* Bytes that this process has had read from disks, page faults and read-ahead included; 0 when not
 * known. */
int64_t os_disk_read(void);
/* A mapping that is read again and again: large pages where the system has them for files. */
void os_map_huge(const struct os_map *m);
/* Bring the pages of [p, p + n) of any mapping into memory and into this process. Errors: IO.
 * Threads: any. */
sl_status os_touch(const void *p, uint64_t n, sl_err *err) BASE_MUST_USE;
/* From now on a SIGBUS inside a mapping made by os_map_open (the file was truncated under us)
 * prints one line that names the file and exits with code 1, instead of a core dump. Process-wide;
 * tools call it once. */
void os_map_guard(void);

/* A whole small file into memory (mem_free). Errors as os_map_open, LIMIT when longer than max. A
 * NUL follows it. */
sl_status os_read_file(const char *path, uint64_t max, char **out, uint64_t *n,
                       sl_err *err) BASE_MUST_USE;
/* The same of a file that is read only once: a pipe, a terminal or a device (/dev/stdin,
 * /dev/fd/63, a named pipe) is fine too and read to its end. Errors: as os_read_file. */
sl_status os_read_once(const char *path, uint64_t max, char **out, uint64_t *n,
                       sl_err *err) BASE_MUST_USE;
/* Write a file through a temporary name, fsync and rename; an existing one is replaced. */
sl_status os_write_file(const char *path, const void *p, uint64_t n, sl_err *err) BASE_MUST_USE;

/* A file being written under a temporary name beside its own ("NAME.PID.tmp"). Of a long one the
 * first bytes come last, so that what a killed writer leaves behind is no file of any kind. Owns
 * descriptor, buffer and names. Zero-initialise; after a failure the only legal call is
 * os_out_abort, which removes what was written. Errors: IO (names file and reason), NOMEM. */
struct os_out {
    char *path, *tmp;
    uint8_t *buf;
    size_t n_buf;
    uint64_t n;      /* bytes written so far */
    uint8_t head[8]; /* the first bytes, which are zero in the file until it is synced */
    int n_head;      /* 0: they were not written yet, or direct */
    int fd;
    bool open, direct; /* direct: the name is a device or a pipe, which is written to as it is */
};
sl_status os_out_open(const char *path, struct os_out *out, sl_err *err) BASE_MUST_USE;
/* Check early that the file can be written, for work that takes long before it writes. Leaves
 * nothing behind; a device or pipe is not touched. */
sl_status os_out_check(const char *path, sl_err *err) BASE_MUST_USE;
sl_status os_out_write(struct os_out *out, const void *p, uint64_t n, sl_err *err) BASE_MUST_USE;
/* Flush, fsync, rename to the final name, fsync the folder; closes. */
sl_status os_out_commit(struct os_out *out, sl_err *err) BASE_MUST_USE;
void os_out_abort(struct os_out *out); /* legal at any time */

/* n bytes at a place of the file, past the buffer of os_out_write; not with it in one file. From
 * several threads at once, at different places. Errors: IO. */
sl_status os_out_write_at(struct os_out *out, uint64_t at, const void *p, uint64_t n,
                          sl_err *err) BASE_MUST_USE;

/* What tells whether a file is still the same: size, time and an XXH3 of its size, its first 256
 * KiB, its last 64 KiB and 64 pages in between. Errors: as os_map_open, and NOMEM. */
sl_status os_stamp(const char *path, uint64_t *size, int64_t *mtime_ns, uint64_t *hash,
                   sl_err *err) BASE_MUST_USE;
/* The first bytes of a regular file: how many there are, at most n. */
size_t os_read_start(const char *path, void *p, size_t n);
/* The absolute name, links resolved; false when there is none or it does not fit. */
bool os_path_full(const char *path, char *out, size_t n);
/* Bytes that this user may still write in a folder; -1 = not known. */
int64_t os_free_bytes(const char *dir);
/* Make a folder and those above it. Errors: IO. */
sl_status os_make_dirs(const char *dir, sl_err *err) BASE_MUST_USE;
/* Remove what a killed writer of path left behind ("PATH.PID.tmp" of a process that is gone, file
 * or folder). */
void os_out_sweep(const char *path);

enum os_kind { OS_NONE, OS_FILE, OS_DIR, OS_OTHER };
/* A link to nothing is OS_OTHER: opening it says so. */
enum os_kind os_path_kind(const char *path);
/* When it was last changed; INT64_MIN where there is nothing. */
int64_t os_path_mtime_ns(const char *path);
/* Names in a directory, sorted by byte, without . and ..; free with os_list_free. Errors: as
 * os_map_open; LIMIT over 100000 names. */
sl_status os_list(const char *dir, char ***names, int *n, sl_err *err) BASE_MUST_USE;
void os_list_free(char **names, int n);
/* Make a folder (its parent must be there); rename a file or folder; both IO with the reason.
 * Remove a folder and the files in it (no folders inside); quietly, as far as it goes. */
sl_status os_dir_make(const char *path, sl_err *err) BASE_MUST_USE;
sl_status os_rename(const char *from, const char *to, sl_err *err) BASE_MUST_USE;
void os_dir_remove(const char *path);
bool os_dir_empty(const char *path);

struct os_topology {
    char cpu[64];     /* "AMD EPYC ..." */
    int n_core, n_pu; /* physical cores and hardware threads in the process's CPU set */
    int n_numa;       /* memory nodes that these belong to */
    int n_core_node;  /* cores of the node that has fewest */
    double cgroup_cpus;               /* quota; 0 = none */
    int64_t l1d, l2, l3;              /* bytes; of one core, one core, one cache */
    int64_t mem_total, mem_available; /* bytes, the cgroup's limit regarded */
    int64_t hugepage_bytes;           /* transparent huge page size, 0 = off */
    char thp[16];                     /* "always", "madvise", "never" */
};
/* What the system does not say is 0 or empty. Errors: NOMEM. */
sl_status os_topology_get(struct os_topology *out, sl_err *err) BASE_MUST_USE;
/* Of n cores or hardware threads what the quota leaves, at least 1. */
int os_within_quota(const struct os_topology *t, int n);
/* One of n_rank teams of n workers each that share the CPUs. */
struct os_team {
    int n, rank, n_rank;
};
/* CPUs to pin its workers to, one per physical core first, -1 where there is no sensible one. Teams
 * are dealt to memory nodes, where there are as many and these have enough CPUs. Returns how many
 * CPUs there are for all teams. */
int os_team_cpus(const struct os_team *t, int *cpu);

/* Of up to `most` (64 at most) pages of p [n], evenly apart: how many there are in memory, and of
 * these on the memory node of the CPU that runs this. */
struct os_pages {
    int n, near;
};
struct os_pages os_pages_near(const void *p, size_t n, int most);

/* Wait until another thread sets the event; a set before the wait is not lost, several count once.
 * Zero-initialise. */
struct os_event {
    int fd;
    bool open;
};
sl_status os_event_open(struct os_event *ev, sl_err *err) BASE_MUST_USE; /* errors: IO */
void os_event_close(struct os_event *ev);
void os_event_set(struct os_event *ev); /* any thread */
/* Returns when the event was set, after timeout_ms (-1 = no limit), or on a signal; clears it. */
void os_event_wait(struct os_event *ev, int timeout_ms);

/* Resident set in bytes: the largest so far, and now (of which file pages are a part). */
int64_t os_rss_peak(void);
int64_t os_rss_now(void);

#endif
