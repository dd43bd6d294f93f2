/* SPDX-License-Identifier: Apache-2.0 */
/* Reads messages from a terminal or a pipe; editing is libedit's. */
#include "chat_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd.h"
#include "text/utf8.h"
#ifdef SL_HAVE_EDIT
#include <editline/readline.h>
#endif

#define PASTE_MAX ((size_t)64 << 20)
#define PASTE_SHOWN 400 /* bytes of a paste of one line that are put into the line as they are */
#define PASTE_COUNT 1000

/* ---- pastes ---- */

#ifdef SL_HAVE_EDIT

static struct chat_input *current; /* libedit's functions have no argument of ours */

/* What comes up to ESC [ 2 0 1 ~, with "\n" for every line end and without NUL. */
static bool read_paste(struct str *s)
{
    static const char end[] = "\033[201~";
    size_t at = 0; /* bytes of end that came last */
    char c, last = 0;
    while (at < sizeof end - 1) {
        ssize_t k = read(STDIN_FILENO, &c, 1);
        if (k < 0 && errno == EINTR && !cmd_stop) continue;
        if (k <= 0) return false;
        bool line_end = c == '\r' || (c == '\n' && last != '\r');
        at = c == end[at] ? at + 1 : c == end[0];
        if (line_end)
            str_putc(s, '\n');
        else if (c && c != '\n')
            str_putc(s, c);
        last = c;
    }
    if (str_status(s, NULL)) return false;
    size_t n = s->n - (sizeof end - 1);
    while (n && s->p[n - 1] == '\n')
        n--;
    str_cut(s, n);
    return true;
}

/* Can it stand in the line as it is, and be read from there as it is? */
static bool shows(const struct str *s)
{
    if (s->n > PASTE_SHOWN || text_utf8_check(s->p, s->n) < s->n) return false;
    if (s->p[s->n - 1] == '\\' || strncmp(s->p + strspn(s->p, " "), "\"\"\"", 3) == 0) return false;
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->p[i] < 0x20 || s->p[i] == 0x7f) return false;
    return true;
}

/* Keep it under a mark; NULL: no memory, or too many. */
static const char *keep(struct chat_input *in, struct str *s)
{
    void *p = NULL;
    int lines = 1;
    if (in->n_paste == PASTE_COUNT) return NULL;
    if (mem_realloc(MEM_REQUEST, in->paste, (size_t)(in->n_paste + 1) * sizeof *in->paste, &p,
                    NULL))
        return NULL;
    in->paste = p;
    for (size_t i = 0; i < s->n; i++)
        lines += s->p[i] == '\n';
    struct chat_paste *x = &in->paste[in->n_paste++];
    *x = (struct chat_paste){.p = s->p, .n = s->n};
    snprintf(x->mark, sizeof x->mark, "[paste %d: %d line%s, %zu bytes]", in->n_paste, lines,
             lines == 1 ? "" : "s", s->n);
    str_init(s, MEM_REQUEST, PASTE_MAX); /* its bytes are the paste's now */
    return x->mark;
}

static int on_paste(int count, int key)
{
    struct str s;
    (void)count, (void)key;
    str_init(&s, MEM_REQUEST, PASTE_MAX + 16);
    const char *mark = NULL;
    if (read_paste(&s) && s.n) mark = shows(&s) ? s.p : keep(current, &s);
    if (mark)
        (void)rl_insert_text(mark);
    else if (s.n)
        rl_ding();
    str_fini(&s);
    rl_forced_update_display();
    return 0;
}

/* So that CR LF of a paste is seen as one line end; readline() sets the terminal anew for each
 * line. */
static int keep_cr(void)
{
    char setty[] = "setty -d -icrnl -inlcr";
    return rl_parse_and_bind(setty);
}

static void edit_init(struct chat_input *in)
{
    char tilde[] = "bind ~ ed-insert", paste[] = "bind ^[[200~ sl-paste";
    current = in;
    rl_readline_name = "sluice";
    if (rl_initialize()) return;
    /* adding a function binds a key too, the last of the sequence that calls it: give that back */
    rl_add_defun("sl-paste", on_paste, '~');
    rl_parse_and_bind(tilde);
    rl_parse_and_bind(paste);
    rl_pre_input_hook = keep_cr;
}
#endif

/* Does what remains of a mark begin here? */
static bool is_torn(const struct chat_input *in, const char *p, size_t n)
{
    static const char head[] = "[paste ";
    size_t i = sizeof head - 1;
    int no = 0;
    if (n <= i || memcmp(p, head, i) != 0) return false;
    for (; i < n && p[i] >= '0' && p[i] <= '9' && no <= PASTE_COUNT; i++)
        no = no * 10 + p[i] - '0';
    return no >= 1 && no <= in->n_paste;
}

static void put_expanded(struct chat_input *in, struct str *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        const struct chat_paste *hit = NULL;
        for (int k = 0; k < in->n_paste && p[i] == '[' && !hit; k++) {
            size_t len = strlen(in->paste[k].mark);
            if (n - i >= len && memcmp(p + i, in->paste[k].mark, len) == 0) hit = &in->paste[k];
        }
        if (hit) {
            in->quoted = in->quoted || i == 0;
            str_put(out, hit->p, hit->n);
        } else {
            in->torn = in->torn || is_torn(in, p + i, n - i);
            str_putc(out, p[i]);
        }
        i += hit ? strlen(hit->mark) : 1;
    }
}

/* ---- lines ---- */

void chat_input_init(struct chat_input *in, bool tty)
{
    const char *term = getenv("TERM");
    *in = (struct chat_input){.tty = tty && isatty(STDIN_FILENO)};
    str_init(&in->text, MEM_REQUEST, 0);
#ifdef SL_HAVE_EDIT
    in->edit = in->tty;
    if (in->edit) edit_init(in);
#endif
    if (in->edit && term && strcmp(term, "dumb") != 0) cmd_paste_mode(true);
}

void chat_input_fini(struct chat_input *in)
{
    cmd_paste_mode(false);
    for (int i = 0; i < in->n_paste; i++)
        mem_free(in->paste[i].p);
    mem_free(in->paste);
    str_fini(&in->text);
}

/* The next line without its end; free() it. NULL at the end. */
static char *read_line(const struct chat_input *in, const char *prompt)
{
#ifdef SL_HAVE_EDIT
    if (in->edit) {
        char *s = readline(prompt);
        if (s && *s) add_history(s);
        return s;
    }
#endif
    if (in->tty) fputs(prompt, stdout), fflush(stdout);
    char *s = NULL;
    size_t cap = 0;
    ssize_t n = getline(&s, &cap, stdin);
    if (n < 0) {
        free(s);
        return NULL;
    }
    if (n && s[n - 1] == '\n') s[--n] = 0;
    if (n && s[n - 1] == '\r' && !in->tty) s[n - 1] = 0;
    return s;
}

static const char quotes[] = "\"\"\"";

/* Does the line's text end in """? Its bytes before those in *n. */
static bool closes(const char *p, size_t *n)
{
    size_t k = strlen(p);
    while (k && strchr(" \t\r", p[k - 1]))
        k--;
    *n = strlen(p);
    if (k < 3 || memcmp(p + k - 3, quotes, 3) != 0) return false;
    *n = k - 3;
    return true;
}

/* A message in quotes, whose first line is there. */
static void read_block(struct chat_input *in, char *line)
{
    char *p = line + strspn(line, " \t") + 3;
    bool first = true, any = false;
    while (line) {
        size_t n = 0;
        bool end = closes(p, &n);
        if (n || !(first || end)) { /* the quotes may stand on lines of their own */
            if (any) str_putc(&in->text, '\n');
            put_expanded(in, &in->text, p, n);
            any = true;
        }
        free(line);
        if (end) return;
        line = p = read_line(in, "... ");
        first = false;
    }
}

/* A line that ends in an odd number of backslashes goes on. */
static bool goes_on(const char *p, size_t n)
{
    size_t k = 0;
    while (k < n && p[n - 1 - k] == '\\')
        k++;
    return k % 2;
}

bool chat_input_next(struct chat_input *in)
{
    str_clear(&in->text);
    in->quoted = in->torn = false;
    char *line = read_line(in, "> ");
    if (!line) return false;
    if (strncmp(line + strspn(line, " \t"), quotes, 3) == 0) {
        in->quoted = true;
        read_block(in, line);
        return !cmd_stop;
    }
    while (line) {
        size_t n = strlen(line);
        bool more = goes_on(line, n);
        put_expanded(in, &in->text, line, n - more);
        if (more) str_putc(&in->text, '\n');
        free(line);
        if (!more) break;
        line = read_line(in, "... ");
    }
    return !cmd_stop;
}
