/* SPDX-License-Identifier: Apache-2.0 */
/* Every field that a request body may have, once: docs/api.md, the checks and the tests are made
 * from this table. Any other is 400 by its name, as at OpenAI and Anthropic: a list of what could
 * change an answer is never whole, one of what is harmless can be. So the table has what is read,
 * what clients are known to send and is without effect, and, of what is refused, fields that
 * clients send at a value which means nothing, or that have another name here.
 *
 * F(routes, name, type, min, max, what, note)
 *   routes  C chat, T completions, R responses, E embeddings (any of them, as an OR)
 *   type    BOOL INT REAL STR OBJ (typed and checked here, null = absent), ANY (by its own code)
 *   min max inclusive, of INT and REAL; bytes of STR
 *   what    USE honoured, SKIP accepted and without effect, DENY 400 unless the value means
 *           nothing: null, false, "", [], an OBJ {}, a number from min to max,
 *           a BOOL of min 1 that is true; of an ANY of min 1 only null
 */
// clang-format off
#define API_FIELD_LIST(F)                                                                          \
    F(C|T|R|E, model,                 STR,  0, 256, USE,                                           \
      "the served name, or any name that the model is known by; another is 404")                   \
    F(C,       messages,              ANY,  0, 0,         USE,                                     \
      "system, developer, user, assistant, tool and function; text parts only")                    \
    F(T,       prompt,                ANY,  0, 0,        USE,                                      \
      "text, list of texts, token ids, or list of lists of them")                                  \
    F(R,       input,                 ANY,  0, 0,        USE,                                      \
      "text, or a list of items, see \"Items and tools\"")                                         \
    F(E,       input,                 ANY,  0, 0,        USE,                                      \
      "text, list of up to 2048 texts, token ids, or list of lists of them")                       \
    F(C|T|R,   stream,                BOOL, 0, 0,        USE,  "server-sent events")               \
    F(C|T,     stream_options,        ANY,  0, 0,        USE,                                      \
      "include_usage; continuous_usage_stats; include_obfuscation has no effect")                  \
    F(R,       stream_options,        ANY,  0, 0,        SKIP,                                     \
      "include_obfuscation has no effect")                                                         \
    F(C|T|R,   temperature,           REAL, 0, 2,         USE,                                     \
      "default: the model's own, else 1; 0 is greedy")                                             \
    F(C|T|R,   top_p,                 REAL, 0, 1,         USE,                                     \
      "default: the model's own, else 1")                                                          \
    F(C|T,     n,                     INT,  1, 128, USE,                                           \
      "samples; times the prompts at most 128")                                                    \
    F(T,       best_of,               INT,  1, 128,      USE,  "only where it equals n")           \
    F(C|T|R,   stop,                  ANY,  0, 0,         USE,                                     \
      "text or up to 16 texts of 1 to 1024 bytes; never part of the answer")                       \
    F(C|T,     max_tokens,            INT,  -1, 16777216, USE,                                     \
      "completions: default 16, 0 only with echo; chat: default -1; -1: until the context is "     \
      "full")                                                                                      \
    F(C,       max_completion_tokens, INT,  -1, 16777216, USE,                                     \
      "the newer name of max_tokens, and stronger")                                                \
    F(R,       max_output_tokens,     INT,  -1, 16777216, USE,                                     \
      "default -1: until the context is full")                                                     \
    F(C|T|R,   presence_penalty,      REAL, -2, 2,        USE,  "")                                \
    F(C|T|R,   frequency_penalty,     REAL, -2, 2,        USE,  "")                                \
    F(C|T|R,   seed,                  INT,  -9223372036854775808.0, 18446744073709551615.0, USE,   \
      "a whole number from -2^63 to 2^64 - 1; without it every request draws its own")             \
    F(C|T|R,   logit_bias,            ANY,  0, 0,         USE,  "{\"token id\": -100 to 100}")     \
    F(C,       logprobs,              BOOL, 0, 0,        USE,  "")                                 \
    F(T,       logprobs,              INT,  0, 20,       USE,  "alternatives per token")           \
    F(C|R,     top_logprobs,          INT,  0, 20,       USE,  "needs logprobs in chat")           \
    F(T,       echo,                  BOOL, 0, 0,        USE,                                      \
      "the prompt first, with logprobs its own (n = 1)")                                           \
    F(C|T|R,   suffix,                ANY,  0, 0,         DENY,                                    \
      "filling in the middle is not supported")                                                    \
    F(C|R,     tools,                 ANY,  0, 0,        USE,                                      \
      "chat: functions; responses: also custom ones and namespaces, others are left out; strict: " \
      "true holds their calls to the schema")                                                      \
    F(C|R,     tool_choice,           ANY,  0, 0,        USE,                                      \
      "none, auto, required, one function by name, or allowed_tools")                              \
    F(C|R,     parallel_tool_calls,   BOOL, 0, 0,        USE,                                      \
      "false: at most one call in an answer")                                                      \
    F(C,       functions,             ANY,  0, 0,        DENY, "deprecated: use tools")            \
    F(C,       function_call,         ANY,  0, 0,        DENY, "deprecated: use tool_choice")      \
    F(C|T,     response_format,       ANY,  0, 0,        USE,  "text, json_object, json_schema")   \
    F(R,       text,                  ANY,  0, 0,        USE,                                      \
      "format: text, json_object, json_schema; verbosity has no effect")                           \
    F(C,       reasoning_effort,      STR,  0, 32, USE,                                            \
      "none, minimal, low, medium, high, xhigh, max: see Thinking")                                \
    F(C|R,     reasoning,             OBJ,  0, 0,         USE,                                     \
      "effort as reasoning_effort; enabled as enable_thinking; summary has no effect")             \
    F(C,       audio,                 ANY,  0, 0,        DENY, "text only")                        \
    F(C,       modalities,            ANY,  0, 0,        USE,  "[\"text\"] only")                  \
    F(C,       web_search_options,    ANY,  0, 0,        DENY,                                     \
      "this server never connects anywhere")                                                       \
    F(C,       prediction,            ANY,  0, 0,        USE,                                      \
      "content: text that the answer is expected to hold for the most part: sooner with --draft; " \
      "n = 1")                                                                                     \
    F(C|R,     moderation,            ANY,  0, 0,         DENY, "nothing is moderated here")       \
    F(C|R,     prompt_cache_options,  ANY,  0, 0,        SKIP, "the prefix cache finds by itself") \
    F(R,       context_management,    ANY,  0, 0,        SKIP, "nothing is compacted")             \
    F(R,       client_metadata,       ANY,  0, 0,        SKIP, "")                                 \
    F(C|T|R,   metadata,              ANY,  0, 0,        SKIP, "responses: given back")            \
    F(T,       store,                 ANY,  0, 0,        SKIP, "nothing is stored")                \
    F(C|R,     store,                 BOOL, 0, 0,        USE,                                      \
      "responses: default true, so that previous_response_id finds it; chat: without effect")      \
    F(C|T|R|E, user,                  STR,  0, 4096,     SKIP, "")                                 \
    F(C|T|R,   safety_identifier,     STR,  0, 4096,     SKIP, "")                                 \
    F(C|T|R,   prompt_cache_key,      STR,  0, 4096,     SKIP, "the prefix cache finds by itself") \
    F(C|R,     prompt_cache_retention, STR, 0, 64,       SKIP, "")                                 \
    F(C|T|R,   service_tier,          STR,  0, 64,       SKIP, "")                                 \
    F(C,       verbosity,             STR,  0, 64,       SKIP, "")                                 \
    F(R,       instructions,          ANY,  0, 0,        USE,                                      \
      "a system message in front; not kept for the next turn")                                     \
    F(R,       previous_response_id,  STR,  0, 128,      USE,  "a stored response to go on from")  \
    F(R,       conversation,          ANY,  0, 0,        DENY, "use previous_response_id")         \
    F(R,       prompt,                ANY,  0, 0,        DENY, "there are no stored prompts")      \
    F(R,       background,            BOOL, 0, 0,        DENY,                                     \
      "answers are made while the client waits")                                                   \
    F(R,       access_programs,       ANY,  0, 0,        SKIP, "")                                 \
    F(R,       background_options,    ANY,  0, 0,        SKIP, "of background")                    \
    F(R,       image,                 ANY,  0, 0,        DENY, "text only")                        \
    F(R,       include,               ANY,  0, 0,        USE,                                      \
      "message.output_text.logprobs; others have no effect")                                       \
    F(R,       truncation,            STR,  0, 64,       USE,  "disabled only")                    \
    F(R,       max_tool_calls,        INT,  1, 1 << 30, SKIP,                                      \
      "counts built-in tools, of which there are none")                                            \
    F(E,       encoding_format,       STR,  0, 64,       USE,  "float (default) or base64")        \
    F(E,       dimensions,            INT,  1, 16777216, USE,                                      \
      "only where it equals the width: vectors can not be shortened")                              \
    F(E,       pooling,               STR,  0, 64, USE,                                            \
      "extension: mean (default) or last")                                                         \
    /* extensions */                                                                               \
    F(C|T|R,   top_k,                 INT,  -1, 1 << 30, USE,                                      \
      "extension: keep the k best tokens; 0 and -1: all; default: the model's own")                \
    F(C|T|R,   min_p,                 REAL, 0, 1,         USE,                                     \
      "extension: drop tokens below this times the best; default: the model's own")                \
    F(C|T|R,   repetition_penalty,    REAL, 0.01, 100, USE,                                        \
      "extension: for tokens seen before; 1 is off; default: the model's own")                     \
    F(C|T|R,   ignore_eos,            BOOL, 0, 0,        USE,                                      \
      "extension: go on after an end of sequence")                                                 \
    F(C|T|R,   min_tokens,            INT,  0, 16777216, USE,  "extension: no end before")         \
    F(C|T|R,   stop_token_ids,        ANY,  0, 0,        USE,                                      \
      "extension: up to 64 token ids that end the answer")                                         \
    F(C|T,     return_token_ids,      BOOL, 0, 0,        USE,                                      \
      "extension: token_ids in each choice, prompt_token_ids")                                     \
    F(C|T,     prompt_token_ids,      ANY,  0, 0,        USE,                                      \
      "extension: token ids instead of messages or prompt")                                        \
    F(C|T|R,   skip_special_tokens,   BOOL, 0, 0,        USE,                                      \
      "extension: false shows control tokens in the text")                                         \
    F(C|T|R,   include_stop_str_in_output,BOOL, 0, 0,         DENY,                                \
      "stop strings are never part of the answer")                                                 \
    F(C|T|R|E, priority,              INT,  -100, 100,   USE,  "extension: higher first")          \
    F(C|T|R|E, timeout_ms,            INT,  0, 86400000, USE,  "extension: 504 after it")          \
    F(C|T|R,   cache_salt,            STR,  0, 256, USE,                                           \
      "extension: the prefix cache is shared only between equal ones")                             \
    F(C|T,     return_progress,       BOOL, 0, 0,        USE,                                      \
      "extension: prefill progress as comments; on by itself for long prompts")                    \
    F(C|R,     chat_template_kwargs,  ANY,  0, 0,         USE,                                     \
      "extension: up to 16 texts, numbers or booleans that the template reads")                    \
    F(C,       continue_final_message, BOOL, 0, 0, USE,                                            \
      "extension: the answer goes on with the last message, which is the assistant's")             \
    F(C|R,     thinking,              ANY,  0, 0,        USE,                                      \
      "extension: {\"type\": \"enabled\" or \"disabled\"}, where the template has a switch")       \
    F(C|R,     enable_thinking,       BOOL, 0, 0,        USE,  "extension: the same as a boolean") \
    F(C,       add_generation_prompt, BOOL, 0, 0,        USE,  "extension: default true")          \
    F(C|T,     structured_outputs,    ANY,  0, 0,        USE,                                      \
      "extension: one of json (schema), regex, grammar (GBNF), choice")                            \
    F(C|T,     guided_json,           ANY,  0, 0,        USE,                                      \
      "extension: a JSON schema; older name")                                                      \
    F(C|T,     guided_regex,          STR,  0, 65536, USE,                                         \
      "extension: a regular expression; older name")                                               \
    F(C|T,     guided_grammar,        STR,  0, 1 << 20, USE,                                       \
      "extension: a grammar (GBNF); older name")                                                   \
    F(C|T,     guided_choice,         ANY,  0, 0,        USE,                                      \
      "extension: one of up to 1024 texts; older name")                                            \
    F(C|T,     json_schema,           ANY,  0, 0,        USE,                                      \
      "extension: a JSON schema; llama.cpp's name")                                                \
    F(C|T,     grammar,               STR,  0, 1 << 20, USE,                                       \
      "extension: a grammar (GBNF); llama.cpp's name")                                             \
    F(C|T|R,   repeat_penalty,        REAL, 0.01, 100, USE,                                        \
      "extension: llama.cpp's name of repetition_penalty")                                         \
    F(C|T,     n_predict,             INT,  -1, 16777216, USE,                                     \
      "extension: llama.cpp's name of max_tokens")                                                 \
    F(T,       add_special_tokens,    BOOL, 0, 0,         USE,                                     \
      "extension: false: no BOS in front of a text; default: as the model's files wish")           \
    F(C|T|R,   repeat_last_n,         INT,  -1, 1 << 30, USE,                                      \
      "extension: only -1 where repetition_penalty is not 1: it looks at all tokens")              \
    F(C|T,     regex,                 STR,  0, 65536, USE,                                         \
      "extension: a regular expression; SGLang's name")                                            \
    F(C|T,     ebnf,                  STR,  0, 1 << 20, USE,                                       \
      "extension: a grammar (GBNF); SGLang's name")                                                \
    /* of other routes */                                                                          \
    F(C,       prompt,                ANY,  0, 0,         DENY, "use messages")                    \
    F(C|T,     input,                 ANY,  0, 0,         DENY, "use messages or prompt")          \
    F(T|R,     messages,              ANY,  0, 0,         DENY, "use prompt or input")             \
    F(C|T,     instructions,          ANY,  0, 0,         DENY, "use a system message")            \
    F(C|T,     max_output_tokens,     ANY,  0, 0,         DENY,                                    \
      "use max_completion_tokens or max_tokens")                                                   \
    F(T|R,     max_completion_tokens, ANY,  0, 0,         DENY,                                    \
      "use max_tokens or max_output_tokens")                                                       \
    F(R,       max_tokens,            ANY,  0, 0,         DENY, "use max_output_tokens")           \
    F(C|T|R,   max_new_tokens,        ANY,  0, 0,         DENY, "use max_tokens")                  \
    F(C|T|R,   min_new_tokens,        ANY,  0, 0,         DENY, "use min_tokens")                  \
    F(C|T|R,   max_length,            ANY,  0, 0,         DENY, "use max_tokens")                  \
    F(C|T|R,   stop_sequences,        ANY,  0, 0,         DENY, "use stop")                        \
    F(C|T|R,   random_seed,           ANY,  0, 0,         DENY, "use seed")                        \
    F(C|T|R,   sampling_seed,         ANY,  0, 0,         DENY, "use seed")                        \
    F(C|T|R,   do_sample,             BOOL, 1, 0,         DENY, "use temperature: 0")              \
    F(T,       tools,                 ANY,  0, 0,         DENY, "only in chat and responses")      \
    F(T,       reasoning_effort,      ANY,  0, 0,         DENY, "only in chat and responses")      \
    F(T|R,     chat_template,         ANY,  0, 0,         DENY, "the model's own is used")         \
    F(R,       reasoning_effort,      ANY,  0, 0,         DENY, "use reasoning.effort")            \
    F(T,       enable_thinking,       ANY,  0, 0,         DENY, "only in chat and responses")      \
    F(R,       response_format,       ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       n,                     INT,  1, 1,         DENY, "one answer only")                 \
    F(R,       logprobs,              ANY,  0, 0,         DENY, "use include and top_logprobs")    \
    F(R,       structured_outputs,    ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       guided_json,           ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       guided_regex,          ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       guided_grammar,        ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       guided_choice,         ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       json_schema,           ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       grammar,               ANY,  0, 0,         DENY, "use text.format")                 \
    F(R,       return_token_ids,      BOOL, 0, 0,         DENY, "only in chat and completions")    \
    F(R,       continue_final_message,BOOL, 0, 0,         DENY, "only in chat")                    \
    F(C,       best_of,               INT,  1, 1,         DENY, "use n")                           \
    /* of other servers, that change the answer */                                                 \
    F(C|T|R,   use_beam_search,       BOOL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   length_penalty,        REAL, 1, 1,         DENY, "of beam search")                  \
    F(C|T|R,   early_stopping,        BOOL, 0, 0,         DENY, "of beam search")                  \
    F(C|T|R,   bad_words,             ANY,  0, 0,         DENY, "logit_bias forbids tokens")       \
    F(C|T|R,   allowed_token_ids,     ANY,  0, 0,         DENY, "logit_bias forbids tokens")       \
    F(C|T|R,   logits_processors,     ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   custom_logit_processor,ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   custom_params,         OBJ,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   vllm_xargs,            OBJ,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   prompt_logprobs,       ANY,  0, 0,         DENY,                                    \
      "completions with echo and logprobs give them")                                              \
    F(C|T|R,   logprob_token_ids,     ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   truncate_prompt_tokens,ANY,  0, 0,         DENY, "prompts are never cut")           \
    F(E,       truncate_prompt_tokens,ANY,  0, 0,         DENY, "prompts are never cut")           \
    F(C|T|R,   return_tokens_as_token_ids,BOOL, 0, 0,         DENY, "return_token_ids gives them") \
    F(C|T|R,   return_prompt_text,    BOOL, 0, 0,         DENY, "/apply-template gives it")        \
    F(C|T|R,   return_hidden_states,  BOOL, 0, 0,         DENY, "not supported")                   \
    F(C|R,     echo,                  BOOL, 0, 0,         DENY, "only in completions")             \
    F(C,       add_special_tokens,    BOOL, 0, 0,         DENY, "the chat template adds them")     \
    F(C,       chat_template,         ANY,  0, 0,         DENY, "the model's own is used")         \
    F(C,       documents,             ANY,  0, 0,         DENY, "put them into a message")         \
    F(C|T|R,   mm_processor_kwargs,   OBJ,  0, 0,         DENY, "text only")                       \
    F(C|T|R,   media_io_kwargs,       OBJ,  0, 0,         DENY, "text only")                       \
    F(C|T|R,   kv_transfer_params,    OBJ,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   repetition_detection,  ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   watermarking,          BOOL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   thinking_token_budget, ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   thinking_budget,       ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   reasoning_budget,      INT,  -1, -1,       DENY, "not supported")                   \
    F(C|T|R,   include_reasoning,     BOOL, 1, 0,         DENY, "reasoning is always told")        \
    F(C|T|R,   separate_reasoning,    BOOL, 1, 0,         DENY,                                    \
      "--reasoning-parser none leaves it in the text")                                             \
    F(C|T|R,   parse_tool_calls,      BOOL, 1, 0,         DENY,                                    \
      "--tool-parser none leaves them in the text")                                                \
    F(C|T|R,   reasoning_format,      STR,  0, 64,        USE,  "extension: auto or deepseek")     \
    F(C|T|R,   guided_whitespace_pattern,ANY,  0, 0,         DENY, "not supported")                \
    F(C|T|R,   structural_tag,        ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   no_stop_trim,          BOOL, 0, 0,         DENY,                                    \
      "stop strings are never part of the answer")                                                 \
    F(C|T|R,   stop_regex,            ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   lora,                  ANY,  0, 0,         DENY, "there are no adapters")           \
    F(C|T|R,   lora_path,             ANY,  0, 0,         DENY, "there are no adapters")           \
    F(C|T|R,   typical_p,             REAL, 1, 1,         DENY, "not supported")                   \
    F(C|T|R,   tfs_z,                 REAL, 1, 1,         DENY, "not supported")                   \
    F(C|T|R,   top_a,                 REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   top_n_sigma,           REAL, -1, 0,        DENY, "not supported")                   \
    F(C|T|R,   xtc_probability,       REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   dry_multiplier,        REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   dynatemp_range,        REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   smoothing_factor,      REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   mirostat,              INT,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   mirostat_mode,         INT,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   penalty_alpha,         REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   epsilon_cutoff,        REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   eta_cutoff,            REAL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   no_repeat_ngram_size,  INT,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   encoder_repetition_penalty,REAL, 1, 1,         DENY, "not supported")               \
    F(C|T|R,   temperature_last,      BOOL, 0, 0,         DENY,                                    \
      "filters come after the temperature")                                                        \
    F(C|T|R,   samplers,              ANY,  0, 0,         DENY,                                    \
      "the order is fixed: min_p, top_k, top_p after the temperature")                             \
    F(C|T|R,   sampler_seq,           ANY,  0, 0,         DENY, "the order is fixed")              \
    F(C|T|R,   penalize_nl,           BOOL, 0, 0,         DENY, "not supported")                   \
    F(C|T|R,   min_keep,              INT,  0, 1,         DENY, "not supported")                   \
    F(C|T|R,   n_keep,                INT,  -1, 0,        DENY, "prompts are never cut")           \
    F(C|T|R,   n_indent,              INT,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   n_probs,               INT,  0, 0,         DENY, "use logprobs")                    \
    F(C|T|R,   t_max_predict_ms,      INT,  0, 0,         DENY, "use timeout_ms")                  \
    F(C|T|R,   post_sampling_probs,   BOOL, 0, 0,         DENY, "logprobs are of the model")       \
    F(C|T|R,   response_fields,       ANY,  0, 0,         DENY, "not supported")                   \
    F(C|T|R,   options,               OBJ,  0, 0,         DENY,                                    \
      "ollama's: use the fields of OpenAI")                                                        \
    F(C|T|R,   format,                ANY,  0, 0,         DENY, "ollama's: use response_format")   \
    F(C|T|R,   safe_prompt,           BOOL, 0, 0,         DENY, "put it into a message")           \
    F(C|T|R,   transforms,            ANY,  0, 0,         DENY, "prompts are never cut")           \
    F(C|T|R,     stop_words,            ANY,  0,  0,        DENY,  "use stop")                     \
    F(C|T|R,     stop_sequence,         ANY,  0,  0,        DENY,  "use stop")                     \
    F(C|T|R,     stop_str,              ANY,  0,  0,        DENY,  "use stop")                     \
    F(C|T|R,     stop_strings,          ANY,  0,  0,        DENY,  "use stop")                     \
    F(C|T|R,     stopping_strings,      ANY,  0,  0,        DENY,  "use stop")                     \
    F(C|T|R,     stop_token,            ANY,  0,  0,        DENY,  "use stop or stop_token_ids")   \
    F(C|T|R,     stop_tokens,           ANY,  0,  0,        DENY,  "use stop or stop_token_ids")   \
    F(C|T|R,     eos_token_id,          ANY,  0,  0,        DENY,  "use stop_token_ids")           \
    F(C|T|R,     ban_eos_token,         BOOL, 0,  0,        DENY,  "use ignore_eos")               \
    F(C|T|R,     bad_words_ids,         ANY,  0,  0,        DENY,  "logit_bias forbids tokens")    \
    F(C|T|R,     banned_tokens,         ANY,  0,  0,        DENY,  "logit_bias forbids tokens")    \
    F(C|T|R,     custom_token_bans,     ANY,  0,  0,        DENY,  "logit_bias forbids tokens")    \
    F(C|T|R,     banned_strings,        ANY,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     logits_bias,           ANY,  0,  0,        DENY,  "use logit_bias")               \
    F(C|T|R,     num_predict,           ANY,  0,  0,        DENY,  "use max_tokens")               \
    F(C|T|R,     max_tokens_to_sample,  ANY,  0,  0,        DENY,  "use max_tokens")               \
    F(C|T|R,     max_gen_len,           ANY,  0,  0,        DENY,  "use max_tokens")               \
    F(C|T|R,     max_gen_toks,          ANY,  0,  0,        DENY,  "use max_tokens")               \
    F(C|T|R,     max_tokens_second,     INT,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     t_max_prompt_ms,       INT,  0,  0,        DENY,  "use timeout_ms")               \
    F(C|T|R,     num_beams,             INT,  0,  1,        DENY,  "not supported")                \
    F(C|T|R,     num_return_sequences,  INT,  1,  1,        DENY,  "use n")                        \
    F(C|T|R,     guidance_scale,        REAL, 1,  1,        DENY,  "not supported")                \
    F(C|T|R,     negative_prompt,       ANY,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     rep_pen,               REAL, 1,  1,        DENY,  "use repetition_penalty")       \
    F(C|T|R,     rep_pen_range,         INT,  0,  0,        DENY,  "it looks at all tokens")       \
    F(C|T|R,     repetition_penalty_range, INT,  0,  0,        DENY,  "it looks at all tokens")    \
    F(C|T|R,     adaptive_target,       REAL, -1, -1,       DENY,  "not supported")                \
    F(C|T|R,     typical,               REAL, 1,  1,        DENY,  "not supported")                \
    F(C|T|R,     tfs,                   REAL, 1,  1,        DENY,  "not supported")                \
    F(C|T|R,     nsigma,                REAL, -1, 0,        DENY,  "not supported")                \
    F(C|T|R,     skew,                  REAL, 0,  0,        DENY,  "not supported")                \
    F(C|T|R,     dynamic_temperature,   BOOL, 0,  0,        DENY,  "not supported")                \
    F(C|T|R,     sampler_order,         ANY,  0,  0,        DENY,  "the order is fixed")           \
    F(C|T|R,     sampler_priority,      ANY,  0,  0,        DENY,  "the order is fixed")           \
    F(C|T|R,     sampler_seed,          INT,  -1, -1,       DENY,  "use seed")                     \
    F(C|T|R,     add_bos_token,         BOOL, 1,  0,        DENY,                                  \
      "use add_special_tokens in completions")                                                     \
    F(C|T|R,     grammar_string,        ANY,  0,  0,        DENY,  "use grammar")                  \
    F(C|T|R,     response_schema,       ANY,  0,  0,        DENY,  "use response_format")          \
    F(C|T|R,     think,                 ANY,  1,  0,        DENY,  "use enable_thinking")          \
    F(C|T|R,     reasoning_budget_tokens, INT,  -1, -1,       DENY,  "not supported")              \
    F(C|T|R,     thinking_budget_tokens, INT,  -1, -1,       DENY,  "not supported")               \
    F(C|T|R,     reasoning_in_content,  BOOL, 0,  0,        DENY,                                  \
      "--reasoning-parser none leaves it in the text")                                             \
    F(C|T|R,     system,                ANY,  0,  0,        DENY,                                  \
      "use a system message, in responses instructions")                                           \
    F(C|T|R,     system_prompt,         ANY,  0,  0,        DENY,                                  \
      "use a system message, in responses instructions")                                           \
    F(C|T|R,     template,              ANY,  0,  0,        DENY,  "the model's own is used")      \
    F(C|T|R,     raw,                   BOOL, 0,  0,        DENY,  "completions take raw prompts") \
    F(C|T|R,     context,               ANY,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     input_ids,             ANY,  0,  0,        DENY,  "use prompt_token_ids")         \
    F(C|T|R,     input_embeds,          ANY,  0,  0,        DENY,  "token ids and text only")      \
    F(C|T|R,     prompt_embeds,         ANY,  0,  0,        DENY,  "token ids and text only")      \
    F(C|T|R,     images,                ANY,  0,  0,        DENY,  "text only")                    \
    F(C|T|R,     image_data,            ANY,  0,  0,        DENY,  "text only")                    \
    F(C|T|R,     audio_data,            ANY,  0,  0,        DENY,  "text only")                    \
    F(C|T|R,     video_data,            ANY,  0,  0,        DENY,  "text only")                    \
    F(C|T|R,     use_audio_in_video,    BOOL, 0,  0,        DENY,  "text only")                    \
    F(C|T|R,     sampling_params,       OBJ,  0,  0,        DENY,                                  \
      "give its members as fields of the body")                                                    \
    F(C|T|R,     extra_body,            OBJ,  0,  0,        DENY,                                  \
      "give its members as fields of the body")                                                    \
    F(C|T|R,     nvext,                 OBJ,  0,  0,        DENY,                                  \
      "give what it asks for as fields of the body")                                               \
    F(C|T|R,     lora_request,          ANY,  0,  0,        DENY,  "there are no adapters")        \
    F(C|T|R,     adapter_id,            ANY,  0,  0,        DENY,  "there are no adapters")        \
    F(C|T|R,     models,                ANY,  0,  0,        DENY,                                  \
      "one model is served: use model")                                                            \
    F(C|T|R,     plugins,               ANY,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     data_sources,          ANY,  0,  0,        DENY,  "put them into a message")      \
    F(C|T|R,     search_parameters,     ANY,  0,  0,        DENY,                                  \
      "this server never connects anywhere")                                                       \
    F(C|T|R,     enable_search,         BOOL, 0,  0,        DENY,                                  \
      "this server never connects anywhere")                                                       \
    F(C|T|R,     ec_transfer_params,    OBJ,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     session_params,        OBJ,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     task,                  ANY,  0,  0,        DENY,  "not supported")                \
    F(C|T|R,     extra_key,             ANY,  0,  0,        DENY,  "use cache_salt")               \
    F(C|T|R,     return_routed_experts, BOOL, 0,  0,        DENY,  "not supported")                \
    F(C|T|R,     return_tokens,         BOOL, 0,  0,        DENY,  "use return_token_ids")         \
    F(C|T|R,     return_prompt_token_ids, BOOL, 0,  0,        DENY,  "use return_token_ids")       \
    F(C|T|R,     return_meta_info,      BOOL, 0,  0,        DENY,  "not supported")                \
    F(C|T|R,     return_token_offsets,  BOOL, 0,  0,        DENY,  "not supported")                \
    F(E,       input_type,            ANY,  0, 0,         DENY,                                    \
      "put an instruction into the text")                                                          \
    F(E,       instruction,           ANY,  0, 0,         DENY, "put it into the text")            \
    F(E,       messages,              ANY,  0, 0,         DENY, "use input")                       \
    F(E,       normalize,             BOOL, 1, 0,         DENY, "vectors have the length 1")       \
    F(E,       late_chunking,         BOOL, 0, 0,         DENY, "not supported")                   \
    F(E,         prompt,                ANY,  0,  0,        DENY,  "use input")                    \
    F(E,         options,               OBJ,  0,  0,        DENY,                                  \
      "ollama's: use the fields of OpenAI")                                                        \
    F(E,         truncate,              BOOL, 0,  0,        DENY,  "prompts are never cut")        \
    F(E,         add_special_tokens,    BOOL, 1,  0,        DENY,  "as the model's files wish")    \
    F(E,         task,                  ANY,  0,  0,        DENY,                                  \
      "put an instruction into the text")                                                          \
    F(E,         extra_body,            OBJ,  0,  0,        DENY,                                  \
      "give its members as fields of the body")                                                    \
    /* of other servers, without effect on the answer */                                           \
    F(C|T|R,   cache_prompt,          ANY,  0, 0,         SKIP,                                    \
      "the prefix cache finds by itself")                                                          \
    F(C|T|R,   id_slot,               ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   request_id,            ANY,  0, 0,         SKIP,                                    \
      "the header X-Request-Id is taken")                                                          \
    F(C|T|R,   rid,                   ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   session_id,            ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   stream_interval,       ANY,  0, 0,         SKIP, "--stream-interval-ms")            \
    F(C|T|R,   timings_per_token,     ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   keep_alive,            ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   spaces_between_special_tokens,ANY,  0, 0,         SKIP, "there are none")           \
    F(C|T|R,   guided_decoding_backend,ANY,  0, 0,         SKIP, "")                               \
    F(C|T|R,   truncation_side,       ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   mirostat_tau,          ANY,  0, 0,         SKIP, "of mirostat")                     \
    F(C|T|R,   mirostat_eta,          ANY,  0, 0,         SKIP, "of mirostat")                     \
    F(C|T|R,   dry_base,              ANY,  0, 0,         SKIP, "of dry_multiplier")               \
    F(C|T|R,   dry_allowed_length,    ANY,  0, 0,         SKIP, "of dry_multiplier")               \
    F(C|T|R,   dry_penalty_last_n,    ANY,  0, 0,         SKIP, "of dry_multiplier")               \
    F(C|T|R,   dry_sequence_breakers, ANY,  0, 0,         SKIP, "of dry_multiplier")               \
    F(C|T|R,   xtc_threshold,         ANY,  0, 0,         SKIP, "of xtc_probability")              \
    F(C|T|R,   dynatemp_exponent,     ANY,  0, 0,         SKIP, "of dynatemp_range")               \
    F(C|T|R,   stream_reasoning,      ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,     routed_experts_start_len, ANY,  0,  0,        SKIP,  "of return_routed_experts")  \
    F(C|T|R,     routed_experts_prompt_start, ANY,  0,  0,        SKIP,                            \
      "of return_routed_experts")                                                                  \
    F(C|T|R,     return_cached_tokens_details, ANY,  0,  0,        SKIP,                           \
      "usage has prompt_tokens_details")                                                           \
    F(C|T|R,     return_mm_kwargs,      ANY,  0,  0,        SKIP,  "text only")                    \
    F(C|T|R,     adaptive_decay,        ANY,  0,  0,        SKIP,  "of adaptive_target")           \
    F(C|T|R,     smoothing_curve,       ANY,  0,  0,        SKIP,  "of smoothing_factor")          \
    F(C|T|R,     dynatemp_low,          ANY,  0,  0,        SKIP,  "of dynamic_temperature")       \
    F(C|T|R,     dynatemp_high,         ANY,  0,  0,        SKIP,  "of dynamic_temperature")       \
    F(C|T|R,     n_discard,             ANY,  0,  0,        SKIP,  "of n_keep")                    \
    F(C|T|R,     truncation_length,     ANY,  0,  0,        SKIP,  "prompts are never cut")        \
    F(C|T|R,     trim_stop,             ANY,  0,  0,        SKIP,                                  \
      "stop strings are never part of the answer")                                                 \
    F(C|T|R,     n_cache_reuse,         ANY,  0,  0,        SKIP,                                  \
      "the prefix cache finds by itself")                                                          \
    F(C|T|R,     speculative_ngram,     ANY,  0,  0,        SKIP,                                  \
      "answers are the same with drafts")                                                          \
    F(C|T|R,     ngram_corpus_id,       ANY,  0,  0,        SKIP,                                  \
      "answers are the same with drafts")                                                          \
    F(C|T|R,     sse_ping_interval,     ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     bootstrap_host,        ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     bootstrap_port,        ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     bootstrap_room,        ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     data_parallel_rank,    ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     routed_dp_rank,        ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     disagg_prefill_dp_rank, ANY,  0,  0,        SKIP,  "of routers")                  \
    F(C|T|R,     route,                 ANY,  0,  0,        SKIP,  "of routers")                   \
    F(C|T|R,     custom_labels,         ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     trace,                 ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     chat_id,               ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     conversation_id,       ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     api_type,              ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,     api_server,            ANY,  0,  0,        SKIP,  "")                             \
    F(E,         metadata,              ANY,  0,  0,        SKIP,  "")                             \
    F(E,         request_id,            ANY,  0,  0,        SKIP,  "")                             \
    F(E,         rid,                   ANY,  0,  0,        SKIP,  "")                             \
    F(E,         keep_alive,            ANY,  0,  0,        SKIP,  "")                             \
    F(C|T|R,   provider,              ANY,  0, 0,         SKIP, "")                                \
    F(C|T|R,   usage,                 ANY,  0, 0,         SKIP, "")
// clang-format on
