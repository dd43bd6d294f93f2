/* SPDX-License-Identifier: Apache-2.0 */
/* Waking a thread that sleeps: eventfd. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "os/os.h"

sl_status os_event_open(struct os_event *ev, sl_err *err)
{
    ev->open = false;
    ev->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ev->fd < 0) return SL_FAIL(err, IO, "eventfd: %s", strerror(errno));
    ev->open = true;
    return SL_OK;
}

void os_event_close(struct os_event *ev)
{
    if (ev->open) close(ev->fd);
    ev->open = false;
}

void os_event_set(struct os_event *ev)
{
    uint64_t one = 1;
    /* a full counter is a set event, so nothing is lost when this fails */
    if (write(ev->fd, &one, sizeof one) < 0) return;
}

void os_event_wait(struct os_event *ev, int timeout_ms)
{
    struct pollfd p = {.fd = ev->fd, .events = POLLIN};
    uint64_t n;
    if (poll(&p, 1, timeout_ms) > 0 && read(ev->fd, &n, sizeof n) < 0) return;
}
