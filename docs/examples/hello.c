/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest use of libsluice: one prompt, the answer as it is made.
 *
 *     cc hello.c $(pkg-config --cflags --libs sluice) -o hello && ./hello [MODEL] [PROMPT]
 */
#include <sluice.h>
#include <stdio.h>

static void print(void *user, const sl_event *ev)
{
    fwrite(ev->text, 1, ev->n_text, user);
    fflush(user);
    if (ev->finish == SL_FINISH_ERROR) fprintf(stderr, "hello: %s\n", ev->error);
}

int main(int argc, char **argv)
{
    sl_model *model = NULL;
    sl_engine *engine = NULL;
    sl_err err;
    sl_request req = {.text = argc > 2 ? argv[2] : "The quick brown fox",
                      .max_tokens = 32,
                      .on_event = print,
                      .user = stdout};

    if (sl_model_open(argc > 1 ? argv[1] : "demo", NULL, &model, &err)) goto fail;
    if (sl_engine_open(model, NULL, &engine, &err)) goto fail;
    if (sl_submit(engine, &req, NULL, &err)) goto fail;
    while (sl_pending(engine))
        if (sl_step(engine, &err)) goto fail;
    putchar('\n');
    sl_engine_close(engine);
    sl_model_close(model);
    return 0;
fail:
    fprintf(stderr, "hello: %s\n", err.text);
    sl_engine_close(engine);
    sl_model_close(model);
    return 1;
}
