/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines and signals. */
#include <stdlib.h>
#include <sys/ioctl.h>
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
    tty_at_start; /* line editing changes the terminal; leaving in the middle puts it back */
static bool have_tty;

static volatile sig_atomic_t paste_mode;
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

void cmd_paste_mode(bool on)
{
    if (on == (paste_mode != 0)) return;
    paste_mode = on;
    fputs(on ? PASTE_ON : PASTE_OFF, stdout);
    fflush(stdout);
}

static bool serves; /* SIGTERM is what ends it */

int cmd_stopped(void)
{
    return serves && cmd_stop == SIGTERM ? CMD_OK : CMD_INTERRUPTED;
}

static void leave(int sig)
{
    if (paste_mode && write(STDOUT_FILENO, PASTE_OFF, sizeof PASTE_OFF - 1) < 0) paste_mode = 0;
    if (have_tty) (void)tcsetattr(STDIN_FILENO, TCSANOW, &tty_at_start);
    _exit(sig == SIGALRM ? cmd_stopped() : CMD_INTERRUPTED);
}

static void on_stop(int sig)
{
    if (sig == SIGINT && cmd_stop_soft == 1) { /* chat is answering: stop the answer */
        cmd_stop_soft = 2;
        return;
    }
    if (cmd_stop) leave(sig);
    cmd_stop = sig;
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
    sa.sa_handler = SIG_DFL;
    sigaction(SIGPIPE, &sa, NULL); /* a closed pipe ends us quietly, as other tools */
    sa.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &sa, NULL); /* writes past a limit on files' sizes fail, and say so */
}

void cmd_signals_server(void)
{
    serves = true;
    cmd_signals_sockets();
}

void cmd_signals_sockets(void)
{
    struct sigaction sa = {.sa_handler = SIG_IGN};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGPIPE, &sa, NULL);
}

void cmd_progress_init(struct cmd_progress *p, bool quiet)
{
    *p = (struct cmd_progress){.on = !quiet && isatty(STDERR_FILENO)};
}

#define DRAW_NS 100000000     /* ten times a second */
#define PATIENCE_NS 500000000 /* shorter work shows nothing */

static bool due(struct cmd_progress *p, const char *what, int64_t done)
{
    int64_t now = clock_now_ns();
    if (what != p->what) {
        p->what = what;
        p->done0 = done;
        p->t0_ns = now;
        p->last_ns = now + PATIENCE_NS - DRAW_NS;
        return false;
    }
    if (!p->on || now - p->last_ns < DRAW_NS) return false;
    p->last_ns = now;
    p->drawn = true;
    return true;
}

/* Columns of the terminal as it is now; 80 where it does not say. */
static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

/* The parts of a line, each with what separates it from the one before. */
struct parts {
    char what[80], percent[16], tight[16], amount[64], rate[32], left[32]; /* tight: of percent */
};

/* What fits into the terminal without its last column, where the cursor would wrap: the rate goes
 * first, then the time left, then blanks, then the amount; at last the line is cut. */
static void draw(const struct parts *p)
{
    char line[256];
    int room = columns() - 1;
    const char *const form[][4] = {{p->percent, p->amount, p->rate, p->left},
                                   {p->percent, p->amount, "", p->left},
                                   {p->percent, p->amount, "", ""},
                                   {p->tight, p->amount + 1, "", ""},
                                   {p->percent, "", "", p->left},
                                   {p->tight, "", "", ""}};
    for (int i = 0; i < BASE_COUNT_OF(form); i++) {
        int n = snprintf(line, sizeof line, "%s%s%s%s%s", p->what, form[i][0], form[i][1],
                         form[i][2], form[i][3]);
        if (n <= room) break;
    }
    fprintf(stderr, "\r\033[K%.*s", room, line);
    fflush(stderr);
}

/* Percent and time left of done out of total, which done does not exceed. */
static void put_share(struct parts *p, double done, double total, double rate)
{
    double s = rate > 0 ? (total - done) / rate : 0;
    int percent = (int)(100 * done / total);
    snprintf(p->percent, sizeof p->percent, " %3d %%", percent);
    snprintf(p->tight, sizeof p->tight, " %d%%", percent);
    if (s < 600)
        snprintf(p->left, sizeof p->left, ", %.0f s left", s);
    else
        snprintf(p->left, sizeof p->left, s < 36000 ? ", %.0f min left" : ", %.0f h left",
                 s < 36000 ? s / 60 : s / 3600);
}

static double per_second(const struct cmd_progress *p, int64_t done)
{
    return (double)BASE_MAX(done - p->done0, 0) * 1e9 / (double)(p->last_ns - p->t0_ns);
}

int cmd_progress_bytes(void *user, const char *what, int64_t done, int64_t total)
{
    struct cmd_progress *p = user;
    struct parts t = {0};
    if (!due(p, what, done)) return cmd_stop != 0;
    if (total > 0 && done > total) done = total;
    double gb = (double)done * 1e-9, rate = per_second(p, done) * 1e-9;
    snprintf(t.what, sizeof t.what, "%s", what);
    if (total > 0) {
        put_share(&t, gb, (double)total * 1e-9, rate);
        snprintf(t.amount, sizeof t.amount, "  %.2f of %.2f GB", gb, (double)total * 1e-9);
    } else
        snprintf(t.amount, sizeof t.amount, "  %.2f GB", gb);
    snprintf(t.rate, sizeof t.rate, ", %.2f GB/s", rate);
    draw(&t);
    return cmd_stop != 0;
}

int cmd_progress_count(struct cmd_progress *p, const char *what, const char *unit, int64_t done,
                       int64_t total)
{
    struct parts t = {0};
    if (!due(p, what, done)) return cmd_stop != 0;
    if (total > 0 && done > total) done = total;
    double rate = per_second(p, done);
    snprintf(t.what, sizeof t.what, "%s", what);
    if (total > 0) {
        put_share(&t, (double)done, (double)total, rate);
        snprintf(t.amount, sizeof t.amount, "  %lld of %lld %s", (long long)done, (long long)total,
                 unit);
    } else
        snprintf(t.amount, sizeof t.amount, "  %lld %s", (long long)done, unit);
    snprintf(t.rate, sizeof t.rate, ", %.0f %s/s", rate, unit);
    draw(&t);
    return cmd_stop != 0;
}

void cmd_progress_end(struct cmd_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    p->what = NULL;
}
