/* SPDX-License-Identifier: Apache-2.0 */
/* Several chats decoded together, each with its own seed; what one answers does not depend on the
 * others.
 *
 *     cc batch.c $(pkg-config --cflags --libs sluice) -o batch && ./batch [MODEL]
 */
#include <sluice.h>
#include <stdio.h>
#include <string.h>

#define N 3

struct chat {
    const char *messages; /* JSON, as clients of OpenAI's API send it */
    char text[2048];
    size_t n;
    int n_token;
};

static void collect(void *user, const sl_event *ev)
{
    struct chat *c = user;
    size_t n = ev->n_text < sizeof c->text - 1 - c->n ? ev->n_text : sizeof c->text - 1 - c->n;
    memcpy(c->text + c->n, ev->text, n);
    c->n += n;
    c->n_token = ev->n_token;
}

int main(int argc, char **argv)
{
    static struct chat chat[N] = {
        {.messages = "[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]"},
        {.messages = "[{\"role\":\"user\",\"content\":\"What is 17 + 5?\"}]"},
        {.messages = "[{\"role\":\"system\",\"content\":\"Answer "
                     "briefly.\"},{\"role\":\"user\",\"content\":\"Name a colour.\"}]"},
    };
    sl_model *model = NULL;
    sl_engine *engine = NULL;
    sl_engine_opts opts = {.n_seq_max = N, .n_ctx = 512};
    sl_err err;
    int rc = 1;

    if (sl_model_open(argc > 1 ? argv[1] : "demo", NULL, &model, &err)) goto out;
    if (sl_engine_open(model, &opts, &engine, &err)) goto out;
    for (int i = 0; i < N; i++) {
        sl_chat c = {.messages = chat[i].messages};
        int32_t *ids = NULL;
        int n_ids = 0;
        if (sl_chat_render(model, &c, NULL, &ids, &n_ids, &err)) goto out;
        sl_request req = {.ids = ids,
                          .n_ids = n_ids,
                          .max_tokens = 48,
                          .on_event = collect,
                          .user = &chat[i],
                          .sampling = {.temperature = 0.7f, .top_p = 0.9f, .seed = (uint64_t)i}};
        sl_status st = sl_submit(engine, &req, NULL, &err); /* everything is copied */
        sl_free(ids);
        if (st) goto out;
    }
    while (sl_pending(engine))
        if (sl_step(engine, &err)) goto out;
    for (int i = 0; i < N; i++)
        printf("%d: %s (%d tokens)\n", i, chat[i].text, chat[i].n_token);
    rc = 0;
out:
    if (rc) fprintf(stderr, "batch: %s\n", err.text);
    sl_engine_close(engine);
    sl_model_close(model);
    return rc;
}
