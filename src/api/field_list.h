/* SPDX-License-Identifier: Apache-2.0 */
/* Every field that a request body may have, once: docs/api.md, the checks and the tests are made from
 * this table. Unknown fields are ignored.
 *
 * F(routes, name, type, min, max, what, note)
 *   routes  C chat, T completions, R responses, E embeddings (any of them, as an OR)
 *   type    BOOL INT REAL STR (typed and checked here, null = absent), ANY (by its own code)
 *   min max inclusive, of INT and REAL; bytes of STR
 *   what    USE honoured, SKIP accepted and without effect, DENY 400 unless null, false or empty
 */
// clang-format off
#define API_FIELD_LIST(F)                                                                                                              \
    F(C|T|R|E, model,                 STR,  0, 256,      USE,  "the served name, or any name that the model is known by; another is 404")   \
    F(C,       messages,              ANY,  0, 0,        USE,  "system, developer, user, assistant and tool; text parts only")              \
    F(T,       prompt,                ANY,  0, 0,        USE,  "text, list of texts, token ids, or list of lists of them")                  \
    F(R,       input,                 ANY,  0, 0,        USE,  "text, or a list of items, see \"Items and tools\"")                            \
    F(E,       input,                 ANY,  0, 0,        USE,  "text, list of up to 2048 texts, token ids, or list of lists of them")       \
    F(C|T|R,   stream,                BOOL, 0, 0,        USE,  "server-sent events")                                                        \
    F(C|T,     stream_options,        ANY,  0, 0,        USE,  "include_usage; continuous_usage_stats; include_obfuscation has no effect")  \
    F(R,       stream_options,        ANY,  0, 0,        SKIP, "include_obfuscation has no effect")                                         \
    F(C|T|R,   temperature,           REAL, 0, 2,        USE,  "default 1; 0 is greedy")                                                    \
    F(C|T|R,   top_p,                 REAL, 0, 1,        USE,  "default 1")                                                                 \
    F(C|T,     n,                     INT,  1, 128,      USE,  "samples; times the prompts at most 128")                                    \
    F(T,       best_of,               INT,  1, 128,      USE,  "only where it equals n")                                                    \
    F(C|T,     stop,                  ANY,  0, 0,        USE,  "text or up to 16 texts of 1 to 1024 bytes; never part of the answer")       \
    F(C|T,     max_tokens,            INT,  0, 16777216, USE,  "completions: default 16, 0 only with echo; chat: until the context is full") \
    F(C,       max_completion_tokens, INT,  1, 16777216, USE,  "the newer name of max_tokens, and stronger")                                \
    F(R,       max_output_tokens,     INT,  1, 16777216, USE,  "")                                                                          \
    F(C|T,     presence_penalty,      REAL, -2, 2,       USE,  "")                                                                          \
    F(C|T,     frequency_penalty,     REAL, -2, 2,       USE,  "")                                                                          \
    F(C|T,     seed,                  INT,  -9223372036854775807.0, 9223372036854775807.0, USE, "without it every request draws its own")   \
    F(C|T,     logit_bias,            ANY,  0, 0,        USE,  "{\"token id\": -100 to 100}")                                               \
    F(C,       logprobs,              BOOL, 0, 0,        USE,  "")                                                                          \
    F(T,       logprobs,              INT,  0, 20,       USE,  "alternatives per token")                                                    \
    F(C|R,     top_logprobs,          INT,  0, 20,       USE,  "needs logprobs in chat")                                                    \
    F(T,       echo,                  BOOL, 0, 0,        USE,  "the prompt first, with logprobs its own (n = 1)")                                   \
    F(T,       suffix,                ANY,  0, 0,        DENY, "no model here fills in the middle")                                         \
    F(C|R,     tools,                 ANY,  0, 0,        USE,  "chat: functions; responses: also custom ones and namespaces, others are left out; strict: true holds their calls to the schema") \
    F(C|R,     tool_choice,           ANY,  0, 0,        USE,  "none, auto, required, one function by name, or allowed_tools") \
    F(C|R,     parallel_tool_calls,   BOOL, 0, 0,        USE,  "false: at most one call in an answer")                                      \
    F(C,       functions,             ANY,  0, 0,        DENY, "deprecated: use tools")                                                     \
    F(C,       function_call,         ANY,  0, 0,        DENY, "deprecated: use tool_choice")                                               \
    F(C,       response_format,       ANY,  0, 0,        USE,  "text, json_object, json_schema")                                            \
    F(R,       text,                  ANY,  0, 0,        USE,  "format: text, json_object, json_schema; verbosity has no effect")           \
    F(C,       reasoning_effort,      STR,  0, 32,       USE,  "none turns thinking off where the template can; others go to the template")  \
    F(R,       reasoning,             ANY,  0, 0,        USE,  "effort as reasoning_effort; summary has no effect")                         \
    F(C,       audio,                 ANY,  0, 0,        DENY, "text only")                                                                 \
    F(C,       modalities,            ANY,  0, 0,        USE,  "[\"text\"] only")                                                           \
    F(C,       web_search_options,    ANY,  0, 0,        DENY, "this server never connects anywhere")                                       \
    F(C,       prediction,            ANY,  0, 0,        SKIP, "")                                                                          \
    F(C|R,     moderation,            ANY,  0, 0,        DENY, "nothing is moderated here")                                                 \
    F(C|R,     prompt_cache_options,  ANY,  0, 0,        SKIP, "the prefix cache finds by itself")                                          \
    F(R,       context_management,    ANY,  0, 0,        SKIP, "nothing is compacted")                                                      \
    F(R,       client_metadata,       ANY,  0, 0,        SKIP, "")                                                                         \
    F(C|R,     metadata,              ANY,  0, 0,        SKIP, "responses: given back")                                                     \
    F(C|R,     store,                 BOOL, 0, 0,        USE,  "responses: default true, so that previous_response_id finds it; chat: without effect") \
    F(C|T|R|E, user,                  STR,  0, 4096,     SKIP, "")                                                                          \
    F(C|R,     safety_identifier,     STR,  0, 4096,     SKIP, "")                                                                          \
    F(C|R,     prompt_cache_key,      STR,  0, 4096,     SKIP, "the prefix cache finds by itself")                                          \
    F(C|R,     prompt_cache_retention, STR, 0, 64,       SKIP, "")                                                                          \
    F(C|R,     service_tier,          STR,  0, 64,       SKIP, "")                                                                          \
    F(C,       verbosity,             STR,  0, 64,       SKIP, "")                                                                          \
    F(R,       instructions,          ANY,  0, 0,        USE,  "a system message in front; not kept for the next turn")                     \
    F(R,       previous_response_id,  STR,  0, 128,      USE,  "a stored response to go on from")                                           \
    F(R,       conversation,          ANY,  0, 0,        DENY, "use previous_response_id")                                                  \
    F(R,       prompt,                ANY,  0, 0,        DENY, "there are no stored prompts")                                               \
    F(R,       background,            BOOL, 0, 0,        DENY, "answers are made while the client waits")                                   \
    F(R,       include,               ANY,  0, 0,        USE,  "message.output_text.logprobs; others have no effect")                       \
    F(R,       truncation,            STR,  0, 64,       USE,  "disabled only")                                                             \
    F(R,       max_tool_calls,        INT,  1, 1 << 30,  SKIP, "counts built-in tools, of which there are none")                            \
    F(E,       encoding_format,       STR,  0, 64,       USE,  "float (default) or base64")                                                 \
    F(E,       dimensions,            INT,  1, 16777216, USE,  "only where it equals the width: vectors can not be shortened")             \
    F(E,       pooling,               STR,  0, 64,       USE,  "extension: mean (default) or last")                                         \
    /* extensions */                                                                                                                   \
    F(C|T|R,   top_k,                 INT,  -1, 1 << 30, USE,  "extension: keep the k best tokens; 0 and -1: all")                          \
    F(C|T|R,   min_p,                 REAL, 0, 1,        USE,  "extension: drop tokens below this times the best")                          \
    F(C|T|R,   repetition_penalty,    REAL, 0, 100,      USE,  "extension: for tokens seen before; 1 is off")                               \
    F(C|T|R,   ignore_eos,            BOOL, 0, 0,        USE,  "extension: go on after an end of sequence")                                 \
    F(C|T|R,   min_tokens,            INT,  0, 16777216, USE,  "extension: no end before")                                                  \
    F(C|T|R,   stop_token_ids,        ANY,  0, 0,        USE,  "extension: up to 64 token ids that end the answer")                         \
    F(C|T,     return_token_ids,      BOOL, 0, 0,        USE,  "extension: token_ids in each choice, prompt_token_ids")                     \
    F(C|T,     prompt_token_ids,      ANY,  0, 0,        USE,  "extension: token ids instead of messages or prompt")                        \
    F(C|T|R,   skip_special_tokens,   BOOL, 0, 0,        USE,  "extension: false shows control tokens in the text")                         \
    F(C|T,     include_stop_str_in_output, BOOL, 0, 0,   DENY, "stop strings are never part of the answer")                                 \
    F(C|T|R|E, priority,              INT,  -100, 100,   USE,  "extension: higher first")                                                   \
    F(C|T|R|E, timeout_ms,            INT,  0, 86400000, USE,  "extension: 504 after it")                                                   \
    F(C|T|R,   cache_salt,            STR,  0, 256,      USE,  "extension: the prefix cache is shared only between equal ones")             \
    F(C|T,     return_progress,       BOOL, 0, 0,        USE,  "extension: prefill progress as comments; on by itself for long prompts")    \
    F(C|R,     chat_template_kwargs,  ANY,  0, 0,        USE,  "extension: up to 16 texts, numbers or booleans for the template")           \
    F(C,       add_generation_prompt, BOOL, 0, 0,        USE,  "extension: default true")                                                   \
    F(C|T,     structured_outputs,    ANY,  0, 0,        USE,  "extension: one of json (schema), regex, grammar (GBNF), choice")            \
    F(C|T,     guided_json,           ANY,  0, 0,        USE,  "extension: a JSON schema; older name")                                      \
    F(C|T,     guided_regex,          STR,  0, 65536,    USE,  "extension: a regular expression; older name")                               \
    F(C|T,     guided_grammar,        STR,  0, 1 << 20,  USE,  "extension: a grammar (GBNF); older name")                                   \
    F(C|T,     guided_choice,         ANY,  0, 0,        USE,  "extension: one of up to 1024 texts; older name")                            \
    F(C|T,     json_schema,           ANY,  0, 0,        USE,  "extension: a JSON schema; llama.cpp's name")                                \
    F(C|T,     grammar,               STR,  0, 1 << 20,  USE,  "extension: a grammar (GBNF); llama.cpp's name")
// clang-format on
