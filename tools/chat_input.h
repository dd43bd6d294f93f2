/* SPDX-License-Identifier: Apache-2.0 */
/* What is typed in `sluice chat`: a message is a line, or several:
 *
 *   a line that ends in a backslash goes on with the next one; two backslashes are two
 *   """ begins a message of any lines, up to the line that ends in """
 *   text that is pasted into a terminal is one piece, whatever line ends are in it
 *
 * The last needs libedit and a terminal with bracketed paste. A long or many-line paste, or one
 * that a line would not keep as it is, stands in the edited line as a mark, "[paste 1: 3 lines, 58
 * bytes]", which becomes the text when the line is sent; marks of earlier lines stay good. One
 * input at a time. */
#ifndef TOOLS_CHAT_INPUT_H
#define TOOLS_CHAT_INPUT_H

#include <stdbool.h>

#include "base/str.h"

struct chat_paste {
    char *p; /* mem_free */
    size_t n;
    char mark[64];
};
struct chat_input {
    bool edit, tty;  /* lines are edited; prompts are shown */
    struct str text; /* the last message, without its line end */
    bool quoted;     /* it stood in quotes or in a mark: no command, whatever it begins with */
    bool torn;       /* it has a mark that was changed, so that its text is not there */
    struct chat_paste *paste;
    int n_paste;
};

/* tty: stdout is a terminal. */
void chat_input_init(struct chat_input *in, bool tty);
void chat_input_fini(struct chat_input *in);
/* The next message into in->text; false at the end of the input, or when it was interrupted. */
bool chat_input_next(struct chat_input *in);

#endif
