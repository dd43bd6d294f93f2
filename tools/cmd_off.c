/* SPDX-License-Identifier: Apache-2.0 */
/* Commands whose library was not there when sluice was built: they say which. */
#include "cmd.h"

#define OFF(command, text, library)                                                                \
    static int run_##command(struct cmd_ctx *c)                                                    \
    {                                                                                              \
        sl_err err;                                                                                \
        (void)c;                                                                                   \
        (void)SL_FAIL(&err, UNSUPPORTED, #command ": not in this build: " library                  \
                                                 " was not there: install it and build again");    \
        return cmd_fail(&err);                                                                     \
    }                                                                                              \
    static const struct opt opts_##command[] = {{0}};                                              \
    const struct cmd cmd_##command = {.name = #command,                                            \
                                      .summary = text,                                             \
                                      .usage = "",                                                 \
                                      .example = "sluice " #command,                               \
                                      .opts = opts_##command,                                      \
                                      .opts_bytes = 1,                                             \
                                      .n_arg_max = 1 << 20,                                        \
                                      .run = run_##command};

#ifndef SL_HAVE_CURL
OFF(load, "measure any OpenAI server (not in this build)", "libcurl (libcurl4-gnutls-dev)")
#endif
