/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, fills its options, runs it, turns failures into one line and an
 * exit code. */
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/str.h"
#include "cmd.h"
#include "cmd_list.h"
#include "os/os.h"

#define CMD(name) extern const struct cmd cmd_##name;
CMD_LIST(CMD)
#undef CMD

static const struct cmd *const table[] = {
#define CMD(name) &cmd_##name,
    CMD_LIST(CMD)
#undef CMD
};

const struct cmd *const *cmd_table(int *n)
{
    *n = BASE_COUNT_OF(table);
    return table;
}

int cmd_fail(const sl_err *err)
{
    if (err->code == SL_CANCELLED) return cmd_stopped();
    fprintf(stderr, "sluice: %s\n", err->text);
    return CMD_FAILED;
}

int cmd_usage(const char *fmt, ...)
{
    va_list ap;
    fputs("sluice: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return CMD_USAGE;
}

int cmd_can_write(const char *opt, const char *path)
{
    sl_err err;
    if (!path || strcmp(path, "-") == 0 || os_out_check(path, &err) == SL_OK) return CMD_OK;
    fprintf(stderr, "sluice: --%s: %s\n", opt, err.text);
    return CMD_FAILED;
}

const char *cmd_unwritten(int e)
{
    return e == ENOSPC || e == EDQUOT ? "disk full"
           : e == EBADF               ? "it is closed"
           : e == EFBIG               ? "the file may not become longer"
           : e                        ? "input or output error"
                                      : "an earlier write did";
}

int cmd_flush(int rc)
{
    errno = 0;
    bool bad = fflush(stdout) != 0;
    int why = bad ? errno : 0;
    if (!(bad || ferror(stdout)) || rc != CMD_OK) return rc;
    if (why == EPIPE) return CMD_PIPE;
    fprintf(stderr, "sluice: write failed: standard output: %s\n", cmd_unwritten(why));
    return CMD_FAILED;
}

static const struct cmd *find(const char *name)
{
    for (int i = 0; i < BASE_COUNT_OF(table); i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *best = NULL;
    int best_d = 4;
    for (int i = 0; i < BASE_COUNT_OF(table); i++) {
        int d = str_distance(name, table[i]->name);
        if (d < best_d) best_d = d, best = table[i]->name;
    }
    if (best) return cmd_usage("unknown command: %.40s: did you mean %s?", name, best);
    return cmd_usage("unknown command: %.40s: sluice --help lists them", name);
}

/* Where the options of this command keep quiet and verbose, for the log level. */
static const bool *flag_of(const struct cmd *c, const void *opts, const char *name)
{
    for (const struct opt *o = c->opts; o->name; o++)
        if (strcmp(o->name, name) == 0 && o->kind == OPT_FLAG)
            return (const bool *)((const char *)opts + o->at);
    return NULL;
}

/* A cap that is misspelt would be none: what runs is not what was asked for. */
static int check_cap(void)
{
    const char *cap = getenv("SL_CPU");
    char list[256];
    size_t n = 0;
    if (!cap || !*cap || cpu_isa_cap(cap)) return CMD_OK;
    for (int i = 0; i < CPU_N_ISA; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, " %s", cpu_isa_name((enum cpu_isa)i));
    return cmd_usage("bad value: SL_CPU=%.40s: there are%s", cap, list);
}

static int run_cmd(const struct cmd *cmd, char **argv)
{
    struct cmd_ctx c = {.cmd = cmd};
    sl_err err = {0};
    int rc;
    mem_arena_init(&c.arena, MEM_MISC, 0);
    if (mem_arena_alloc(&c.arena, cmd->opts_bytes, &c.opts, &err)) return cmd_fail(&err);
    sl_status st = opt_parse(cmd->opts, argv, c.opts, &c.arena, &c.rest, &err);
    if (!st && !c.rest.help) st = opt_pairs_check(cmd->opts, cmd->pairs, c.opts, &c.rest, &err);
    if (c.rest.help) {
        cmd_help(cmd, stdout);
        rc = CMD_OK;
    } else if (st) {
        rc = cmd_fail(&err);
        if (st == SL_REQUEST) rc = CMD_USAGE;
    } else if (c.rest.n < cmd->n_arg_min)
        rc = cmd_usage("missing argument: sluice %s %s: see sluice %s --help", cmd->name,
                       cmd->usage, cmd->name);
    else if (c.rest.n > cmd->n_arg_max)
        rc = cmd_usage("unexpected argument: %.60s: see sluice %s --help", c.rest.v[cmd->n_arg_max],
                       cmd->name);
    else if ((rc = check_cap()) == CMD_OK) {
        const bool *quiet = flag_of(cmd, c.opts, "quiet"),
                   *verbose = flag_of(cmd, c.opts, "verbose");
        if (quiet && *quiet) log_set_level(LOG_ERROR);
        if (verbose && *verbose) log_set_level(LOG_DEBUG);
        rc = cmd->run(&c);
    }
    rc = cmd_flush(rc);
    mem_arena_fini(&c.arena);
    return rc;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    cmd_signals_init();
    os_map_guard();
    if (argc < 2) {
        cmd_overview(stderr);
        return CMD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const struct cmd *c = argc > 2 ? find(argv[2]) : NULL;
        if (argc > 2 && !c) return unknown(argv[2]);
        if (c)
            cmd_help(c, stdout);
        else
            cmd_overview(stdout);
        return cmd_flush(CMD_OK);
    }
    if (strcmp(name, "--man") == 0) {
        static char all[1 << 18]; /* written at once, so that a failure has a reason */
        setvbuf(stdout, all, _IOFBF, sizeof all);
        cmd_man(stdout);
        return cmd_flush(CMD_OK);
    }
    if (strcmp(name, "--version") == 0) name = "version";
    if (name[0] == '-')
        return cmd_usage("unknown option: %.40s: a command comes first, see sluice --help", name);
    const struct cmd *c = find(name);
    return c ? run_cmd(c, argv + 2) : unknown(name);
}
