/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks for never becomes something else where memory is short: it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api_internal.h"
#include "api/form.h"
#include "base/str.h"
#include "test.h"

static sl_err err;

static sl_model *vocabulary(void)
{
    static const sl_model_opts o = {.vocab_only = 1};
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(TEST_DATA "/../../models/demo/demo.gguf", &o, &m, &err));
    return m;
}

TEST(api_the_end_of_a_prompt_is_known_or_refused)
{
    static const struct {
        const char *text;
        bool thinks, thought;
    } all[] = {{"a", false, false},
               {"a<think> \n", true, false},
               {"<think>b</think>\n\n", false, true},
               {"<think>b", false, false}};
    api a = {.o.model = vocabulary()};
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        int32_t *ids = NULL;
        int n = 0, n_fail = 0;
        ASSERT_OK(sl_tokenize(a.o.model, all[i].text, strlen(all[i].text), SL_TOK_SPECIAL, &ids, &n,
                              &err));
        for (int k = 0; k <= 20; k++) { /* 0: nothing fails */
            const struct api_prompt p = {.ids = ids, .n_ids = n};
            struct api_prompt_end at;
            mem_fail_at((uint64_t)k, 0);
            sl_status st = api_prompt_end(&a, &p, &at, &err);
            mem_fail_at(0, 0);
            assert_true(st == SL_OK || (k && st == SL_NOMEM));
            n_fail += st != SL_OK;
            if (st) continue;
            assert_int_equal(at.thinks, all[i].thinks);
            assert_int_equal(at.thought, all[i].thought);
        }
        assert_in_range(n_fail, 1, 19);
        sl_free(ids);
    }
    sl_model_close((sl_model *)(uintptr_t)a.o.model);
}

TEST(api_a_tag_of_a_grammar_is_the_same_or_refused)
{
    api a = {.o.model = vocabulary()};
    struct str want, got;
    int n_fail = 0;
    str_init(&want, MEM_MISC, 0);
    api_form_tag(&a, &want, API_THINK_END);
    ASSERT_OK(str_status(&want, &err));
    assert_true(want.n > 0);
    for (int k = 1; k <= 40; k++) {
        str_init(&got, MEM_MISC, 0);
        mem_fail_at((uint64_t)k, 0);
        api_form_tag(&a, &got, API_THINK_END);
        mem_fail_at(0, 0);
        if (str_status(&got, &err))
            n_fail++;
        else
            assert_string_equal(str_c(&got), str_c(&want));
        str_fini(&got);
    }
    assert_in_range(n_fail, 2, 39);
    str_fini(&want);
    sl_model_close((sl_model *)(uintptr_t)a.o.model);
}

/* Arguments of calls, which become values where they are JSON. fail: the allocation that fails. */
static sl_status put_arguments(const char *args, uint64_t fail, struct str *out)
{
    static const struct api_put how = {0};
    struct str body;
    struct arena a;
    const struct json *list = NULL;
    str_init(&body, MEM_MISC, 0);
    mem_arena_init(&a, MEM_MISC, 0);
    str_puts(&body, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                    "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
                    "{\"name\":\"f\",\"arguments\":\"");
    text_json_escape(&body, args, strlen(args));
    str_puts(&body, "\"}}]}]");
    ASSERT_OK(text_json_parse(&a, "messages", str_c(&body), body.n, &list, &err));
    str_fini(&body);
    char *fill = NULL; /* so that the arena takes a block for what comes */
    while (a.cap - a.used >= 16)
        ASSERT_OK(mem_arena_str(&a, "", 0, &fill, &err));
    mem_fail_at(fail, 0);
    sl_status st = api_messages_put(&a, out, list, &how, &err);
    if (!st) st = str_status(out, &err);
    mem_fail_at(0, 0);
    mem_arena_fini(&a);
    return st;
}

static sl_status put_object(const char *args, uint64_t fail, struct str *out)
{
    struct json_w w;
    struct str s;
    str_init(&s, MEM_MISC, 0);
    str_puts(&s, args);
    text_jw_init(&w, out);
    mem_fail_at(fail, 0);
    api_put_object(&w, &s);
    sl_status st = str_status(out, &err);
    mem_fail_at(0, 0);
    str_fini(&s);
    return st;
}

TEST(api_arguments_of_calls_are_the_same_or_refused)
{
    static sl_status (*const put[])(const char *, uint64_t, struct str *) = {put_arguments,
                                                                             put_object};
    static const char *const all[] = {"{\"city\": \"Paris\"}", "{\"cit", "ls -l", "[1]"};
    struct str want, got;
    for (int i = 0; i < 2 * BASE_COUNT_OF(all); i++) {
        int n_fail = 0;
        str_init(&want, MEM_MISC, 0);
        ASSERT_OK(put[i % 2](all[i / 2], 0, &want));
        for (uint64_t k = 1; k <= 20; k++) {
            str_init(&got, MEM_MISC, 0);
            sl_status st = put[i % 2](all[i / 2], k, &got);
            assert_true(st == SL_OK || st == SL_NOMEM);
            n_fail += st != SL_OK;
            if (!st) assert_string_equal(str_c(&got), str_c(&want));
            str_fini(&got);
        }
        assert_in_range(n_fail, 2, 19);
        str_fini(&want);
    }
}

TEST(api_arguments_that_were_cut_for_want_of_memory_are_refused)
{
    struct str s, out;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    str_init(&out, MEM_MISC, 0);
    str_puts(&s, "{}");
    s.failed = SL_NOMEM;
    text_jw_init(&w, &out);
    api_put_object(&w, &s);
    ASSERT_STATUS(str_status(&out, &err), SL_NOMEM);
    str_fini(&s);
    str_fini(&out);
}

/* A template that writes content that is null as a word: whether it does is tried first. */
TEST(api_a_prompt_is_the_same_or_refused)
{
    static const char tmpl[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}"
                               "{% if m.tool_calls %} calls{% endif %}|{% endfor %}<think>",
                      body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                               "\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
                               "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}";
    char path[] = "/tmp/sluice-test-XXXXXX";
    int fd = mkstemp(path), n_fail = 0;
    assert_int_equal(write(fd, tmpl, sizeof tmpl - 1), (ssize_t)sizeof tmpl - 1);
    close(fd);
    const sl_model_opts o = {.vocab_only = 1, .chat_template_file = path};
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(TEST_DATA "/../../models/demo/demo.gguf", &o, &m, &err));
    unlink(path);
    for (uint64_t k = 0; k < 400; k++) { /* 0: nothing fails */
        api a = {.o.model = m};
        struct net_req r = {0};
        const struct json *v = NULL;
        char *text = NULL;
        sl_model_info_get(m, &a.mi);
        a.mi.has_template = 0; /* which would be told of at each */
        mem_arena_init(&r.arena, MEM_MISC, 0);
        ASSERT_OK(text_json_parse(&r.arena, "body", body, sizeof body - 1, &v, &err));
        mem_fail_at(k, 0);
        sl_status st = api_template_open(&a, &err);
        if (!st) assert_true(a.tmpl.always && a.tmpl.calls);
        if (!st) st = api_chat_text(&a, &r, v, &text, &err);
        mem_fail_at(0, 0);
        assert_true(st == SL_OK || (k && st == SL_NOMEM));
        if (!st) assert_string_equal(text, "user: a|assistant:  calls|<think>");
        n_fail += st != SL_OK;
        sl_free(text);
        mem_arena_fini(&r.arena);
    }
    assert_in_range(n_fail, 20, 399);
    sl_model_close(m);
}

TEST(api_another_name_of_a_path_is_found_or_refused)
{
    for (uint64_t k = 0; k < 2; k++) { /* 0: nothing fails */
        struct net_req r = {.path = "/chat/completions/"};
        mem_arena_init(&r.arena, MEM_MISC, 0);
        mem_fail_at(k, 0);
        sl_status st = api_route_path(&r, &err);
        mem_fail_at(0, 0);
        assert_int_equal(st, k ? SL_NOMEM : SL_OK);
        assert_string_equal(r.path, k ? "/chat/completions/" : "/v1/chat/completions");
        mem_arena_fini(&r.arena);
    }
}
