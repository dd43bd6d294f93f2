/* SPDX-License-Identifier: Apache-2.0 */
/* sluice version (also --version): what was built, from what, and what it uses here. */
#include "base/cpu.h"
#include "cmd.h"

struct version_opts {
    struct opt_common common;
};

static const struct opt opts[] = {OPT_ROWS_BASIC(struct version_opts), {0}};

#ifdef SL_HAVE_EDIT
#define EDIT_TEXT "yes"
#else
#define EDIT_TEXT "no"
#endif
#if defined(__clang__)
#define COMPILER_TEXT "clang " __clang_version__
#else
#define COMPILER_TEXT "gcc " __VERSION__
#endif
#ifndef SL_BUILD_TYPE
#define SL_BUILD_TYPE "?"
#endif

static int run(struct cmd_ctx *c)
{
    const struct version_opts *o = c->opts;
    const char *isa = cpu_isa_best(cpu_isa_mask());
    if (o->common.json)
        printf("{\"version\":\"%s\",\"compiler\":\"%s\",\"build\":\"%s\",\"libedit\":\"%s\","
               "\"isa\":\"%s\"}\n",
               sl_version(), COMPILER_TEXT, SL_BUILD_TYPE, EDIT_TEXT, isa);
    else
        printf("sluice %s\nbuilt with %s, %s; libedit %s\nISA in use: %s\n", sl_version(),
               COMPILER_TEXT, SL_BUILD_TYPE, EDIT_TEXT, isa);
    return CMD_OK;
}

const struct cmd cmd_version = {
    .name = "version",
    .summary = "version, commit, build options, ISA in use",
    .usage = "",
    .example = "sluice --version",
    .opts = opts,
    .opts_bytes = sizeof(struct version_opts),
    .run = run,
};
