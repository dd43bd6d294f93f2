/* SPDX-License-Identifier: Apache-2.0 */
/* Help and the man page, both from the option tables. */
#include <string.h>

#include "cmd.h"

static void left_part(const struct opt *o, char *buf, size_t n)
{
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(buf, n, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
}

void cmd_help(const struct cmd *c, FILE *f)
{
    fprintf(f, "usage: sluice %s %s\n", c->name, c->usage);
    fprintf(f, "\n%s\n", c->about ? c->about : c->summary);
    fprintf(f, "\noptions:\n");
    for (const struct opt *o = c->opts; o->name; o++) {
        char left[96];
        left_part(o, left, sizeof left);
        fprintf(f, strlen(left) > 30 ? "  %s\n%34s" : "  %-30s  ", left, "");
        fputs(o->help, f);
        if (o->def && strcmp(o->def, "0") != 0) fprintf(f, " [%s]", o->def);
        fputc('\n', f);
    }
    fprintf(f, "\nexample:\n");
    for (const char *p = c->example; *p;) {
        size_t n = strcspn(p, "\n");
        fprintf(f, "  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

void cmd_overview(FILE *f)
{
    int n;
    const struct cmd *const *t = cmd_table(&n);
    fprintf(f, "usage: sluice COMMAND [options]\n\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "  %-10s %s\n", t[i]->name, t[i]->summary);
    fprintf(f, "\nsluice COMMAND --help explains a command; sluice --version says what was built.\n"
               "Every option is also an environment variable (SLUICE_THREADS=2) and a key of "
               "--config FILE.\n"
               "\nexample:\n  sluice run --chat -p \"What is the capital of France?\"\n");
}

/* Text from the beginning of a line, with roff's special characters escaped. */
static void roff(FILE *f, const char *s)
{
    for (char before = '\n'; *s; before = *s++) {
        if (before == '\n' && (*s == '.' || *s == '\'')) fputs("\\&", f); /* no request */
        if (*s == '\\')
            fputs("\\e", f);
        else if (*s == '-')
            fputs("\\-", f);
        else
            fputc(*s, f);
    }
}

void cmd_man(FILE *f)
{
    int n;
    const struct cmd *const *t = cmd_table(&n);
    fprintf(f,
            ".TH SLUICE 1 \"\" \"sluice %s\"\n.SH NAME\nsluice \\- run large "
            "mixture\\-of\\-experts language models\n",
            sl_version());
    fprintf(f, ".SH SYNOPSIS\n.B sluice\n.I COMMAND\n[options]\n.SH COMMANDS\n");
    for (int i = 0; i < n; i++) {
        fprintf(f, ".SS ");
        roff(f, t[i]->name);
        fprintf(f, "\n.B sluice %s\n", t[i]->name);
        roff(f, t[i]->usage);
        fprintf(f, "\n.PP\n");
        roff(f, t[i]->about ? t[i]->about : t[i]->summary);
        fputc('\n', f);
        for (const struct opt *o = t[i]->opts; o->name; o++) {
            char left[96];
            left_part(o, left, sizeof left);
            fprintf(f, ".TP\n.B ");
            roff(f, left + strspn(left, " "));
            fputc('\n', f);
            roff(f, o->help);
            if (o->def && strcmp(o->def, "0") != 0) fprintf(f, " (default %s)", o->def);
            fputc('\n', f);
        }
        fprintf(f, ".PP\nExample:\n.nf\n");
        roff(f, t[i]->example);
        fprintf(f, "\n.fi\n");
    }
    fprintf(f,
            ".SH ENVIRONMENT\nEvery option \\-\\-some\\-name can be set as SLUICE_SOME_NAME. "
            "SLUICE_MODELS is the folder where\n"
            "model names are looked up. SL_CPU caps the instruction set (ref, avx2, avx512, ...).\n"
            ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage, 130 interrupted.\n");
}
