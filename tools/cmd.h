/* SPDX-License-Identifier: Apache-2.0 */
/* What a command is, and what all of them share: failure lines, progress, signals. A command is a
 * file cmd_<name>.c with one `const struct cmd cmd_<name>` and a row in cmd_list.h. */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "opt.h"
#include "sluice.h"

/* PIPE: what a shell shows for a command that SIGPIPE ended */
enum { CMD_OK = 0, CMD_FAILED = 1, CMD_USAGE = 2, CMD_INTERRUPTED = 130, CMD_PIPE = 141 };

struct cmd_ctx {
    const struct cmd *cmd;
    void *opts;           /* the command's struct, filled */
    struct opt_rest rest; /* arguments that are not options */
    struct arena arena;   /* until the command returns */
};

struct cmd {
    const char *name;
    const char *summary; /* one line for `sluice --help` */
    const char *usage;   /* "[-m MODEL] (-p TEXT | -f FILE | -)": after `sluice NAME` */
    const char *about;   /* up to three lines, or NULL */
    const char *example; /* a runnable command line, or several */
    const struct opt *opts;
    size_t opts_bytes;
    const struct opt_pair *pairs; /* options that say nothing without others, or NULL */
    int n_arg_min, n_arg_max; /* arguments that are not options */
    int (*run)(struct cmd_ctx *c);
};

/* Print `sluice: TEXT` and return the exit code: 1, or 130 for CANCELLED. A wrong argument found by
 * a command itself (REQUEST raised by cmd_usage) gives 2. */
int cmd_fail(const sl_err *err);
/* Wrong usage: print `sluice: TEXT` and return 2. */
int cmd_usage(const char *fmt, ...) BASE_PRINTF(1, 2);
/* Before a long work: can the file of --opt be written at its end? CMD_OK (also for NULL and "-"),
 * else the exit status, after a line that says why not. */
int cmd_can_write(const char *opt, const char *path);

/* Flush stdout; a full disk is a failure of the command: returns rc, or 1 with a line, or where
 * nobody reads stdout any more CMD_PIPE without one. */
int cmd_flush(int rc);
/* What errno says of a write to standard output that failed; 0: it was an earlier one. */
const char *cmd_unwritten(int e);

/* The number of the first Ctrl-C or SIGTERM. A second one, or one second without an end, leaves at
 * once with 130. */
extern volatile sig_atomic_t cmd_stop;
/* The exit code of a command that was stopped: 130, or 0 of a server by SIGTERM, which it may get
 * while it loads. */
int cmd_stopped(void);
void cmd_signals_init(void);
/* For commands with connections: one that breaks is none of the process's. A closed stdout is then
 * what cmd_flush makes of it. */
void cmd_signals_sockets(void);
void cmd_signals_server(void); /* the same, of a command that SIGTERM ends */
/* For chat: Ctrl-C during an answer stops the answer only. The flag is cleared by the caller; no
 * timer. */
extern volatile sig_atomic_t cmd_stop_soft;

/* Have the terminal of stdout mark what is pasted (ESC [ 200 ~ ... ESC [ 201 ~). A way out
 * by a signal turns it off. */
void cmd_paste_mode(bool on);

/* One progress line on stderr when it is a terminal, no wider than that is at the time; nothing
 * otherwise or when quiet. Never over 100 %, never less than no time left. */
struct cmd_progress {
    bool on; /* fixed by init */
    bool drawn;
    int64_t t0_ns, last_ns, done0; /* when this work was first told of, and how far it was then */
    const char *what;
};
void cmd_progress_init(struct cmd_progress *p, bool quiet);
/* As sl_model_opts.progress with user = struct cmd_progress *. Drawn when the work lasts longer
 * than half a second. total <= 0: unknown. Returns 1 when the user wants to stop. unit of done and
 * total: bytes. */
int cmd_progress_bytes(void *p, const char *what, int64_t done, int64_t total);
/* The same for counts of anything: unit "tok". */
int cmd_progress_count(struct cmd_progress *p, const char *what, const char *unit, int64_t done,
                       int64_t total);
void cmd_progress_end(struct cmd_progress *p); /* wipes the line */

/* Help of one command on f; the overview; the man page in roff. */
void cmd_help(const struct cmd *c, FILE *f);
void cmd_overview(FILE *f);
void cmd_man(FILE *f);
const struct cmd *const *cmd_table(int *n);

#endif
