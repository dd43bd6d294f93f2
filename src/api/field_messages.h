/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of /v1/messages and /v1/messages/count_tokens, as field_list.h has those of the other
 * routes. Lists and objects (ANY) are checked by anthropic_in.c, also where they have no effect.
 *
 * M(name, type, min, max, what, note): after the note of a DENY may come the code by which the SDK
 * knows what to do without the field (error.details.error_code). */
// clang-format off
#define API_FIELD_MESSAGES(M)                                                                      \
    M(model,                STR,  0, 256,      USE,                                                \
      "the served name, or any name that the model is known by; another is 404")                   \
    M(messages,             ANY,  0, 0,        USE,                                                \
      "user, assistant and system; texts or lists of blocks. Ends with the assistant's: the "      \
      "answer goes on from there")                                                                 \
    M(system,               ANY,  0, 0,        USE,  "a text, or a list of text blocks")           \
    M(max_tokens,           INT,  0, 16777216, USE,                                                \
      "needed, but for count_tokens; 0 reads the prompt into the prefix cache and answers "        \
      "nothing")                                                                                   \
    M(stream,               BOOL, 0, 0,        USE,  "named server-sent events")                   \
    M(temperature,          REAL, 0, 2,        USE,  "default 1; 0 is greedy")                     \
    M(top_p,                REAL, 0, 1,        USE,  "default 1")                                  \
    M(top_k,                INT,  -1, 1 << 30, USE,  "keep the k best tokens; 0 and -1: all")      \
    M(stop_sequences,       ANY,  0, 0,        USE,                                                \
      "up to 16 texts of 1 to 1024 bytes; never part of the answer")                               \
    M(tools,                ANY,  0, 0,        USE,                                                \
      "those with an input_schema, bash, text_editor and memory; those of Anthropic's servers "    \
      "are left out")                                                                              \
    M(tool_choice,          ANY,  0, 0,        USE,                                                \
      "auto, any, tool or none, with disable_parallel_tool_use; a tool that was left out counts "  \
      "as auto")                                                                                   \
    M(thinking,             ANY,  0, 0,        USE,                                                \
      "enabled and adaptive turn reasoning on where the template can, disabled and nothing turn "  \
      "it off; display; budget_tokens and block_binding have no effect")                           \
    M(output_config,        ANY,  0, 0,        USE,                                                \
      "format: json_schema; effort goes to the template; task_budget has no effect, and "          \
      "x-sluice-ignored says so")                                                                  \
    M(output_format,        ANY,  0, 0,        USE,  "older name of output_config.format")         \
    M(cache_control,        ANY,  0, 0,        USE,                                                \
      "here or in any block or tool: cache_creation_input_tokens are told")                        \
    M(metadata,             ANY,  0, 0,        SKIP, "")                                           \
    M(service_tier,         STR,  0, 64,       USE,  "no effect")                                  \
    M(container,            ANY,  0, 0,        SKIP, "nothing runs here")                          \
    M(context_management,   ANY,  0, 0,        SKIP, "nothing is edited: applied_edits is empty")  \
    M(compaction,           ANY,  0, 0,        DENY, "nothing is compacted")                       \
    M(thread,               ANY,  0, 0,        DENY,                                               \
      "no conversation is kept here: send all its messages", "thread_unsupported_request")         \
    M(fallbacks,            ANY,  0, 0,        SKIP, "nothing is declined here")                   \
    M(fallback_credit_token, ANY, 0, 0,        SKIP, "nothing is billed")                          \
    M(billing_policy,       ANY,  0, 0,        SKIP, "nothing is billed")                          \
    M(workspace_id,         ANY,  0, 0,        SKIP, "")                                           \
    M(mcp_servers,          ANY,  0, 0,        SKIP, "this server never connects anywhere")        \
    M(diagnostics,          ANY,  0, 0,        SKIP, "")                                           \
    M(betas,                ANY,  0, 0,        SKIP, "as the header anthropic-beta")               \
    M(anthropic_beta,       ANY,  0, 0,        SKIP, "as the header")                              \
    M(anthropic_version,    ANY,  0, 0,        SKIP, "as the header")                              \
    M(inference_geo,        STR,  0, 64,       USE,  "no effect")                                  \
    M(speed,                STR,  0, 64,       USE,  "no effect")                                  \
    M(user_profile_id,      STR,  0, 256,      USE,  "no effect")                                  \
    /* extensions */                                                                               \
    M(seed,                 INT,  -9223372036854775807.0,                                          \
      9223372036854775807.0, USE, "extension: without it every request draws its own")             \
    M(min_p,                REAL, 0, 1,        USE,                                                \
      "extension: drop tokens below this times the best")                                          \
    M(min_tokens,           INT,  0, 16777216, USE,  "extension: no end before")                   \
    M(ignore_eos,           BOOL, 0, 0,        USE,  "extension: go on after an end of sequence")  \
    M(priority,             INT,  -100, 100,   USE,  "extension: higher first")                    \
    M(timeout_ms,           INT,  0, 86400000, USE,  "extension: 504 after it")                    \
    M(cache_salt,           STR,  0, 256,      USE,                                                \
      "extension: the prefix cache is shared only between equal ones")                             \
    M(chat_template_kwargs, ANY,  0, 0,        USE,                                                \
      "extension: up to 16 texts, numbers or booleans for the template")
// clang-format on
