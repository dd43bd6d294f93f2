/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, in the order of `sluice --help`. CMD(name): tools/cmd_<name>.c defines `const
 * struct cmd cmd_<name>`. */
#ifndef TOOLS_CMD_LIST_H
#define TOOLS_CMD_LIST_H

/* One command a line. */
#define CMD_LIST(CMD)                                                                              \
    CMD(run)                                                                                       \
    CMD(chat)                                                                                      \
    CMD(serve)                                                                                     \
    CMD(engine)                                                                                    \
    CMD(tokenize)                                                                                  \
    CMD(template)                                                                                  \
    CMD(pack)                                                                                      \
    CMD(inspect)                                                                                   \
    CMD(eval)                                                                                      \
    CMD(quantize)                                                                                  \
    CMD(verify)                                                                                    \
    CMD(bench)                                                                                     \
    CMD(load)                                                                                      \
    CMD(plan)                                                                                      \
    CMD(doctor)                                                                                    \
    CMD(version)

#endif
