/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of /tokenize and /detokenize, as field_list.h has those of the other routes. With
 * messages /tokenize knows those of chat too.
 *
 * K(routes, name, type, min, max, what, note)
 *   routes  I tokenize (to ids), X detokenize (to text) */
// clang-format off
#define API_FIELD_TOKENS(K)                                                                        \
    K(I|X, model,              STR,  0, 256, USE,                                                  \
      "the served name, or any name that the model is known by; another is 404")                   \
    K(I,   prompt,             ANY,  0, 0,   USE,  "text")                                         \
    K(I,   content,            ANY,  0, 0,   USE,                                                  \
      "llama.cpp's name of prompt, with its defaults: no BOS, control tokens are read as such")    \
    K(I,   text,               ANY,  0, 0,   USE,  "the same as prompt")                           \
    K(I,   messages,           ANY,  0, 0,   USE,                                                  \
      "as in chat, whose other fields may stand beside it")                                        \
    K(I,   add_special_tokens, BOOL, 0, 0,   USE,                                                  \
      "default true: BOS in front and EOS behind, where the model's files wish them")              \
    K(I,   parse_special,      BOOL, 0, 0,   USE,                                                  \
      "default false: control tokens in the text are text")                                        \
    K(I,   add_special,        BOOL, 0, 0,   USE,  "llama.cpp's name of add_special_tokens")       \
    K(I,   with_pieces,        BOOL, 0, 0,   DENY, "/detokenize gives texts")                      \
    K(I,   return_token_strs,  BOOL, 0, 0,   DENY, "/detokenize gives texts")                      \
    K(X,   tokens,             ANY,  0, 0,   USE,  "token ids")                                    \
    K(X,   special,            BOOL, 0, 0,   USE,  "default true: control tokens are shown")
// clang-format on
