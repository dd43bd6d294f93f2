/* SPDX-License-Identifier: Apache-2.0 */
/* In a child process: what is forbidden fails, what is needed works. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/sandbox.h"
#include "test.h"

/* Exit code of fn in a child. */
static int in_child(int (*fn)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(fn());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int denied(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd >= 0) close(fd);
    return fd < 0 && errno == EACCES;
}

static int try_files(void)
{
    char dir[] = "/tmp/sluice-sandbox-XXXXXX", in[64], out[64];
    sl_err err = {0};
    bool active = false;
    if (!mkdtemp(dir)) return 1;
    snprintf(in, sizeof in, "%s/in", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    int fd = open(in, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) return 2;
    close(fd);
    struct os_path path[] = {
        {in, OS_READ}, {"/proc/self/status", OS_READ}, {"/no/such/file", OS_READ}, {NULL, OS_READ}};
    if (os_sandbox_files(path, 4, &active, &err)) return 3;
    if (!active) return 77;
    fd = open(in, O_RDONLY);
    if (fd < 0) return 4;
    if (!denied(in, O_WRONLY) || !denied(out, O_WRONLY | O_CREAT)) return 5;
    static const char *const no[] = {"/etc/passwd", "/etc/shadow",    "/usr/bin/env", "/tmp",
                                     "/",           "/proc/self/mem", "/bin/sh",      "/etc"};
    for (int i = 0; i < 8; i++)
        if (!denied(no[i], O_RDONLY)) return 6;
    return 0;
}

static int try_calls(void)
{
    static const long no[] = {SYS_execve,
                              SYS_execveat,
                              SYS_connect,
                              SYS_socket,
                              SYS_socketpair,
                              SYS_bind,
                              SYS_listen,
                              SYS_ptrace,
                              SYS_mount,
                              SYS_umount2,
                              SYS_chroot,
                              SYS_setns,
                              SYS_unshare,
                              SYS_init_module,
                              SYS_finit_module,
                              SYS_delete_module,
                              SYS_bpf,
                              SYS_perf_event_open,
                              SYS_userfaultfd,
                              SYS_keyctl,
                              SYS_add_key,
                              SYS_request_key,
                              SYS_reboot,
                              SYS_swapon,
                              SYS_swapoff,
                              SYS_acct,
                              SYS_setuid,
                              SYS_setgid,
                              SYS_capset,
                              SYS_sethostname,
                              SYS_io_uring_setup,
                              SYS_process_vm_readv,
                              SYS_kexec_load,
                              SYS_pivot_root};
    bool active = false;
    os_sandbox_calls(false, &active);
    if (!active) return 77;
    for (int i = 0; i < BASE_COUNT_OF(no); i++) {
        errno = 0;
        if (syscall(no[i], 0, 0, 0, 0, 0, 0) != -1 || errno != EPERM) return 1 + i;
    }
    if (getpid() <= 0 || write(-1, "", 0) != -1 || errno != EBADF) return 60;
    return 0;
}

static int try_local(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/no/such/socket"};
    bool active = false;
    os_sandbox_calls(true, &active);
    if (!active) return 77;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return 1;
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != -1 || errno != ENOENT) return 2;
    if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EPERM) return 3;
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != -1 || errno != EPERM) return 4;
    return syscall(SYS_execve, 0, 0, 0) != -1 || errno != EPERM ? 5 : 0;
}

static int try_drop(void)
{
    char line[200];
    os_sandbox_drop(false);
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long eff = 1;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "CapEff: %llx", &eff) == 1) break;
    if (f) fclose(f);
    return eff != 0;
}

TEST(os_sandbox_files_outside_are_denied)
{
    int rc = in_child(try_files);
    if (rc == 77) skip();
    assert_int_equal(rc, 0);
}

TEST(os_sandbox_calls_are_refused)
{
    int rc = in_child(try_calls);
    if (rc == 77) skip();
    assert_int_equal(rc, 0);
}

TEST(os_sandbox_calls_may_leave_sockets_of_this_machine)
{
    int rc = in_child(try_local);
    if (rc == 77) skip();
    assert_int_equal(rc, 0);
}

TEST(os_sandbox_drops_capabilities)
{
    assert_int_equal(in_child(try_drop), 0);
}
