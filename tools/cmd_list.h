/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, in the order of `sluice --help`. CMD(name): tools/cmd_<name>.c defines `const struct cmd cmd_<name>`. */
#ifndef TOOLS_CMD_LIST_H
#define TOOLS_CMD_LIST_H

#ifdef TOOLS_HAVE_ENGINE
#define CMD_LIST_ENGINE(CMD) CMD(run) CMD(chat) CMD(eval) CMD(bench) CMD(doctor)
#else
#define CMD_LIST_ENGINE(CMD)
#endif

#ifdef TOOLS_HAVE_PLAN
#define CMD_LIST_PLAN(CMD) CMD(plan)
#else
#define CMD_LIST_PLAN(CMD)
#endif

#define CMD_LIST(CMD)                                                                              \
    CMD_LIST_ENGINE(CMD)                                                                           \
    CMD_LIST_PLAN(CMD)                                                                             \
    CMD(version)

#endif
