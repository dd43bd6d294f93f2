/* SPDX-License-Identifier: Apache-2.0 */
/* Folders: made, renamed, removed with the files in them. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"
#include "os/os_internal.h"

sl_status os_dir_make(const char *path, sl_err *err)
{
    return mkdir(path, 0777) == 0 ? SL_OK : os_fail_errno(errno, path, err);
}

sl_status os_rename(const char *from, const char *to, sl_err *err)
{
    return rename(from, to) == 0 ? SL_OK : os_fail_errno(errno, to, err);
}

bool os_dir_empty(const char *path)
{
    char **name = NULL;
    int n = 0;
    if (os_list(path, &name, &n, NULL) != SL_OK) return false;
    os_list_free(name, n);
    return n == 0;
}

void os_dir_remove(const char *path)
{
    char **name = NULL, file[4608];
    int n = 0;
    if (os_list(path, &name, &n, NULL) != SL_OK) return;
    for (int i = 0; i < n; i++)
        if (snprintf(file, sizeof file, "%s/%s", path, name[i]) < (int)sizeof file) unlink(file);
    os_list_free(name, n);
    rmdir(path);
}
