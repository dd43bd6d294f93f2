/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines and signals. */
#include <stdlib.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd.h"

volatile sig_atomic_t cmd_stop;
volatile sig_atomic_t cmd_stop_soft;

#define STOP_GRACE_US                                                                              \
    800000 /* a step that does not end by then is left: Ctrl-C ends within a second */

static struct termios
    tty_at_start; /* line editing changes the terminal; who leaves in the middle puts it back */
static bool have_tty;

static void leave(int sig)
{
    (void)sig;
    if (have_tty) (void)tcsetattr(STDIN_FILENO, TCSANOW, &tty_at_start);
    _exit(CMD_INTERRUPTED);
}

static void on_stop(int sig)
{
    if (sig == SIGINT && cmd_stop_soft == 1) { /* chat is answering: stop the answer */
        cmd_stop_soft = 2;
        return;
    }
    if (cmd_stop) leave(sig);
    cmd_stop = 1;
    struct itimerval t = {.it_value = {.tv_usec = STOP_GRACE_US}};
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

void cmd_signals_init(void)
{
    struct sigaction sa = {.sa_handler = on_stop};
    have_tty = tcgetattr(STDIN_FILENO, &tty_at_start) == 0;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL); /* no SA_RESTART: a read of the terminal ends */
    sigaction(SIGTERM, &sa, NULL);
    sa.sa_handler = leave;
    sigaction(SIGALRM, &sa, NULL);
    sa.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &sa, NULL); /* writes fail instead, and say so */
    sigaction(SIGXFSZ, &sa, NULL); /* so do those past a limit on files' sizes */
}

void cmd_progress_init(struct cmd_progress *p, bool quiet)
{
    *p = (struct cmd_progress){.on = !quiet && isatty(STDERR_FILENO)};
}

#define DRAW_NS 100000000     /* ten times a second */
#define PATIENCE_NS 500000000 /* shorter work shows nothing */

static bool due(struct cmd_progress *p, const char *what)
{
    int64_t now = clock_now_ns();
    if (what != p->what) {
        p->what = what;
        p->t0_ns = now;
        p->last_ns = now + PATIENCE_NS - DRAW_NS;
        return false;
    }
    if (!p->on || now - p->last_ns < DRAW_NS) return false;
    p->last_ns = now;
    p->drawn = true;
    return true;
}

int cmd_progress_bytes(void *user, const char *what, int64_t done, int64_t total)
{
    struct cmd_progress *p = user;
    if (!due(p, what)) return cmd_stop != 0;
    double s = (double)(p->last_ns - p->t0_ns) * 1e-9, rate = (double)done / s;
    if (total > 0)
        fprintf(stderr, "\r\033[K%s %3.0f %%  %.2f of %.2f GB, %.2f GB/s, %.0f s left", what,
                100.0 * (double)done / (double)total, (double)done * 1e-9, (double)total * 1e-9,
                rate * 1e-9, rate > 0 ? (double)(total - done) / rate : 0);
    else
        fprintf(stderr, "\r\033[K%s %.2f GB, %.2f GB/s", what, (double)done * 1e-9, rate * 1e-9);
    return cmd_stop != 0;
}

int cmd_progress_count(struct cmd_progress *p, const char *what, const char *unit, int64_t done,
                       int64_t total)
{
    if (!due(p, what)) return cmd_stop != 0;
    double s = (double)(p->last_ns - p->t0_ns) * 1e-9, rate = (double)done / s;
    fprintf(stderr, "\r\033[K%s %3.0f %%  %lld of %lld %s, %.0f %s/s, %.0f s left", what,
            total > 0 ? 100.0 * (double)done / (double)total : 0, (long long)done, (long long)total,
            unit, rate, unit, rate > 0 ? (double)(total - done) / rate : 0);
    return cmd_stop != 0;
}

void cmd_progress_end(struct cmd_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    p->what = NULL;
}
