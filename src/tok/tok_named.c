/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which tokenizers split texts that bring no rule of their own: those of GGUF files,
 * which name one (tokenizer.ggml.pre), and of folders without tokenizer.json, where the class of
 * the tokenizer stands for it. One row each. */
#include <string.h>

#include "tok/tok_internal.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TAIL_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORTENED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3 SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2 SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define QWEN35                                                                                     \
    SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "                                    \
              "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT4O                                                                                      \
    BEFORE UPPER "*" LOWER "+" SHORTENED "?|" BEFORE UPPER "+" LOWER "*" SHORTENED                 \
                 "?|\\p{N}{1,3}" TAIL_SLASH
#define TEKKEN BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}" TAIL_SLASH
/* The classes of Kimi-K2 without Han, written as complements (its own file uses a class
 * intersection). */
#define K2_UPPER "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define K2_LOWER "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define KIMI_K2                                                                                    \
    "\\p{Han}+|" BEFORE K2_UPPER "*" K2_LOWER "+" SHORTENED "?|" BEFORE K2_UPPER "+" K2_LOWER      \
    "*" SHORTENED "?|\\p{N}{1,3}" TAIL
#define ASCII_PUNCT "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                                  \
    ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                          \
                "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CJK3 "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/* clang-format off */
/* The cased letters that DeepSeek-LLM splits at: its file lists them, not all that there are. */
#define CASED1 \
    "\\x{41}-\\x{5a}\\x{61}-\\x{7a}\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}" \
    "\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}" \
    "\\x{376}-\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}" \
    "\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}" \
    "\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}" \
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}" \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}" \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}" \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}" \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}" \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}" \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}-\\x{2184}" \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}-\\x{2cf3}" \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}" \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}" \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}" \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}" \
    "\\x{1e900}-\\x{1e943}"
/* clang-format on */
#define CJK1 "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define PUNCT1                                                                                     \
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define SEED                                                                                       \
    SHORTENED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                                            \
              "?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "                                \
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"

/* What llama.cpp does where a file does not name a rule. */
#define UNNAMED_PUNCT "[\\p{P}\\$\\+<=>\\^~\\|]+"
#define UNNAMED "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

/* Rules as in the models' own tokenizer.json. */
static const struct tok_rule rules[] = {
    {.names = " gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum "
              "modern-bert mpt jais trillion granite-docling ",
     .step = {GPT2},
     .vocab = {"GPT2Tokenizer", "gpt2"}},
    {.names = " olmo ", .step = {GPT2}, .nfc = true},
    {.names = " smollm starcoder refact codeshell exaone minerva-7b mellum2 ",
     .step = {"\\p{N}", GPT2}},
    {.names = " command-r ", .step = {"\\p{N}", GPT2}, .nfc = true},
    {.names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     .step = {LLAMA3},
     .ignore_merges = true,
     .ranks = {"PreTrainedTokenizerFast", "TokenizersBackend"}},
    /* in folders a tiktoken file that is called tokenizer.model */
    {.names = " dbrx smaug-bpe chatglm-bpe glm4 glm5 ",
     .step = {LLAMA3},
     .ranks = {"ChatGLM4Tokenizer"}},
    {.names = " qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez ",
     .step = {QWEN2},
     .nfc = true,
     .vocab = {"Qwen2Tokenizer", "qwen"}},
    {.names = " hunyuan solar-open grok-2 ", .step = {QWEN2}},
    {.names = " qwen35 ", .step = {QWEN35}, .nfc = true},
    {.names = " deepseek-v3 hunyuan-dense joyai-llm ", .step = {"\\p{N}{1,3}", CJK3, DEEPSEEK3}},
    {.names = " deepseek-llm ",
     .step = {"[\\r\\n]", "\\s?[" CASED1 "]+", PUNCT1, "\\s+$", CJK1, "\\p{N}"}},
    {.names = " deepseek-coder ",
     .step = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK1, "\\p{N}"}},
    {.names = " gpt-4o llama4 kanana2 minimax-m2 ", .step = {GPT4O}},
    {.names = " tekken ", .step = {TEKKEN}, .ignore_merges = true},
    {.names = " kimi-k2 ",
     .step = {KIMI_K2},
     .ignore_merges = true,
     .ranks = {"kimi", "moonshot", "TikTokenTokenizer", "deepseek_v3"},
     .n_reserved = 256},
    {.names = " seed-coder ", .step = {SEED}},
    {.names = " bailingmoe bailingmoe2 llada-moe ", .step = {BAILING}},
    {.names = " default ", .step = {UNNAMED_PUNCT, UNNAMED, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

const char tok_gpt2[] = GPT2;

bool tok_rule_get(int i, struct tok_rule *out)
{
    if (i < 0 || i >= BASE_COUNT_OF(rules)) return false;
    *out = rules[i];
    return true;
}

sl_status tok_rule_use(tok *t, const struct tok_rule *r, sl_err *err)
{
    if (r->nfc) SL_TRY(tok_norm_add(t, TOK_NORM_NFC, NULL, NULL, err));
    t->ignore_merges = r->ignore_merges;
    for (const char *const *step = r->step; *step; step++)
        SL_TRY(tok_pre_regex(t, *step, strlen(*step), TOK_STEP_ISOLATED, false, err));
    return SL_OK;
}

sl_status tok_pre_named(tok *t, const char *name, size_t n, sl_err *err)
{
    char key[64];
    if (n > 0 && n < sizeof key - 2 && !memchr(name, ' ', n) && !memchr(name, 0, n)) {
        key[0] = ' ';
        memcpy(key + 1, name, n);
        memcpy(key + 1 + n, " ", 2);
        for (int i = 0; i < BASE_COUNT_OF(rules); i++)
            if (strstr(rules[i].names, key)) return tok_rule_use(t, &rules[i], err);
    }
    return SL_FAIL(err, UNSUPPORTED, "pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known",
                   (int)BASE_MIN(n, 60), name);
}

static bool has_part(const struct json *v, const char *part)
{
    if (!v) return false;
    if (v->kind == JSON_STR_K) return strstr(v->s, part) != NULL;
    for (const struct json *m = v->kind == JSON_ARRAY_K ? v->child : NULL; m; m = m->next)
        if (has_part(m, part)) return true;
    return false;
}

static const struct tok_rule *named_in(const struct json *v, bool ranks)
{
    for (int i = 0; i < BASE_COUNT_OF(rules); i++) {
        const char *const *part = ranks ? rules[i].ranks : rules[i].vocab;
        for (int k = 0; k < TOK_RULE_CLASSES && part[k]; k++)
            if (has_part(v, part[k])) return &rules[i];
    }
    return NULL;
}

sl_status tok_rule_of_class(const struct tok_src *s, const char *file, bool ranks,
                            const struct tok_rule **out, sl_err *err)
{
    const struct json *cls = text_json_get(s->config, "tokenizer_class"),
                      *map = text_json_get(text_json_get(s->config, "auto_map"), "AutoTokenizer"),
                      *type = text_json_get(s->f->config, "model_type");
    *out = named_in(map, ranks);
    if (!*out) *out = named_in(cls, ranks);
    if (!*out && !map && !cls) *out = named_in(type, ranks);
    if (*out) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: how it splits text is not known for tokenizer_class \"%.60s\"", file,
                   cls && cls->kind == JSON_STR_K ? cls->s : "");
}
