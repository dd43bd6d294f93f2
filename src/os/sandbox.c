/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up privileges, files (Landlock) and system calls (a seccomp filter). */
#include "os/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- files ---- */

#define FS_READ                                                                                    \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE)
#define FS_READ_FILE (LANDLOCK_ACCESS_FS_READ_FILE)
#define FS_WRITE_FILE (LANDLOCK_ACCESS_FS_WRITE_FILE)
#define FS_WRITE                                                                                   \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                               \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |                               \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |    \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

static sl_status add_path(int rules, const struct os_path *p, sl_err *err)
{
    struct stat st;
    struct landlock_path_beneath_attr a = {.parent_fd = open(p->path, O_PATH | O_CLOEXEC)};
    if (a.parent_fd < 0) return SL_OK;
    bool dir = fstat(a.parent_fd, &st) == 0 && S_ISDIR(st.st_mode);
    a.allowed_access = dir ? LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
                           : FS_READ_FILE;
    if (p->may != OS_READ)
        a.allowed_access |= dir ? FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                      LANDLOCK_ACCESS_FS_MAKE_REG
                                : FS_WRITE_FILE;
    if (p->may == OS_WRITE_DIRS && dir)
        a.allowed_access |= LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR;
    if (p->may == OS_WRITE_SOCKETS && dir) a.allowed_access |= LANDLOCK_ACCESS_FS_MAKE_SOCK;
    long rc = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
    int e = errno;
    close(a.parent_fd);
    if (rc != 0) return SL_FAIL(err, IO, "sandbox: %.150s: %s", p->path, strerror(e));
    return SL_OK;
}

sl_status os_sandbox_files(const struct os_path *path, int n, bool *active, sl_err *err)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = FS_READ | FS_WRITE};
    sl_status st = SL_OK;
    *active = false;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return SL_FAIL(err, IO, "sandbox: %s", strerror(errno));
    long rules = syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (rules < 0) return SL_OK; /* a kernel without it */
    for (int i = 0; i < n && !st; i++)
        if (path[i].path) st = add_path((int)rules, &path[i], err);
    if (!st && syscall(SYS_landlock_restrict_self, (int)rules, 0) != 0)
        st = SL_FAIL(err, IO, "sandbox: %s", strerror(errno));
    close((int)rules);
    *active = st == SL_OK;
    return st;
}

/* ---- privileges ---- */

void os_sandbox_drop(bool keep_bind)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (keep_bind) {
        if (syscall(SYS_capget, &head, data) != 0) return;
        uint32_t bind = data[0].permitted & 1u << CAP_NET_BIND_SERVICE;
        memset(data, 0, sizeof data);
        data[0].effective = data[0].permitted = bind;
    }
    (void)syscall(SYS_capset, &head, data); /* fails only where there is none to drop */
}

/* ---- system calls ---- */

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#endif

/* What a server that has its sockets and files never needs. */
static const int forbidden[] = {
    SYS_execve,          SYS_execveat,       SYS_connect,          SYS_socket,
    SYS_socketpair,      SYS_bind,           SYS_listen,           SYS_ptrace,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount,        SYS_umount2,
    SYS_pivot_root,      SYS_chroot,         SYS_setns,            SYS_unshare,
    SYS_init_module,     SYS_finit_module,   SYS_delete_module,    SYS_kexec_load,
    SYS_bpf,             SYS_perf_event_open, SYS_userfaultfd,     SYS_keyctl,
    SYS_add_key,         SYS_request_key,    SYS_reboot,           SYS_swapon,
    SYS_swapoff,         SYS_acct,           SYS_quotactl,         SYS_name_to_handle_at,
    SYS_open_by_handle_at, SYS_personality,  SYS_setuid,           SYS_setgid,
    SYS_setresuid,       SYS_setresgid,      SYS_capset,           SYS_sethostname,
    SYS_setdomainname,   SYS_settimeofday,   SYS_clock_settime,    SYS_syslog,
    SYS_io_uring_setup,  SYS_pidfd_getfd,    SYS_mknodat,          SYS_vhangup,
#ifdef SYS_fork
    SYS_fork,            SYS_vfork,          SYS_iopl,             SYS_ioperm,
    SYS_modify_ldt,      SYS_mknod,
#endif
};

#ifdef AUDIT_ARCH_HERE
/* socket of AF_UNIX is let through, and connect, whose address a filter cannot see: there are no
 * other sockets but those that clients have opened. */
static int put_local(struct sock_filter *f, int n)
{
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                          offsetof(struct seccomp_data, args));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    return n;
}
#endif

void os_sandbox_calls(bool local, bool *active)
{
    (void)local;
    *active = false;
#ifdef AUDIT_ARCH_HERE
    enum { N = BASE_COUNT_OF(forbidden) };
    struct sock_filter f[N + 16];
    int n = 0;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                          offsetof(struct seccomp_data, arch));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_HERE, 1, 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    /* x32 */
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
#endif
    if (local) n = put_local(f, n);
    for (int i = 0; i < N; i++)
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)forbidden[i],
                                              (uint8_t)(N - i), 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
    *active =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0;
#endif
}
