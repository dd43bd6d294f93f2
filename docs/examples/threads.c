/* SPDX-License-Identifier: Apache-2.0 */
/* How a server uses an engine: one thread steps it, others ask. Two samples of one prompt, which
 * share its KV blocks, and a request with a time limit.
 *
 *     cc threads.c $(pkg-config --cflags --libs sluice) -lpthread -o threads && ./threads [MODEL]
 */
#include <pthread.h>
#include <sluice.h>
#include <stdatomic.h>
#include <stdio.h>

struct server {
    sl_engine *engine;
    atomic_int stop, n_open;
};

/* The engine thread: sleeps while nothing is asked. */
static void *serve(void *user)
{
    struct server *s = user;
    sl_err err;
    while (!atomic_load(&s->stop)) {
        sl_wait(s->engine, 1000);
        if (sl_step(s->engine, &err)) break;
    }
    return NULL;
}

static void on_event(void *user, const sl_event *ev) /* on the engine thread */
{
    struct server *s = user;
    if (ev->finish == SL_FINISH_NONE) return;
    printf("request %llu sample %d: %d tokens, %d of %d prompt tokens from the cache%s%s\n",
           (unsigned long long)ev->id, ev->index, ev->n_token, ev->n_cached, ev->n_prompt,
           ev->finish == SL_FINISH_ERROR ? ": " : "",
           ev->finish == SL_FINISH_ERROR ? ev->error : "");
    if (atomic_fetch_sub(&s->n_open, 1) == 1) atomic_store(&s->stop, 1);
}

int main(int argc, char **argv)
{
    static struct server s;
    sl_model *model = NULL;
    sl_engine_opts opts = {.n_seq_max = 4, .n_ctx = 512};
    pthread_t thread;
    sl_err err;
    int rc = 1;

    if (sl_model_open(argc > 1 ? argv[1] : "demo", NULL, &model, &err)) goto out;
    if (sl_engine_open(model, &opts, &s.engine, &err)) goto out;
    if (sl_warm(s.engine, &err)) goto out; /* so that the first request is not slow */
    atomic_store(&s.n_open, 3);
    if (pthread_create(&thread, NULL, serve, &s)) goto out;
    sl_request req = {.text = "Once upon a time",
                      .n = 2,
                      .max_tokens = 24,
                      .sampling = {.temperature = 0.8f, .seed = 1},
                      .on_event = on_event,
                      .user = &s};
    rc = 0;
    if (sl_submit(s.engine, &req, NULL, &err)) rc = 1; /* any thread */
    req.n = 1;
    req.timeout_ms = 60000;
    if (!rc && sl_submit(s.engine, &req, NULL, &err)) rc = 1;
    if (rc) atomic_store(&s.stop, 1);
    sl_wake(s.engine);
    pthread_join(thread, NULL);
out:
    if (rc) fprintf(stderr, "threads: %s\n", err.text);
    sl_engine_close(s.engine);
    sl_model_close(model);
    return rc;
}
