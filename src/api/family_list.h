/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models by the form of their answers, and the tags that those forms are made of.
 * No guard: it is read with X or API_TAG defined. */
#ifndef X
#define X(name)
#endif
#ifndef API_TAG
#define API_TAG(name, text)
#endif

/* X(name) stands for api_family_<name> in family_<name>.c. A template is looked at for their marks
 * in this order: GLM's tags are beside one of Hermes. */
X(harmony)
X(deepseek)
X(kimi)
X(minimax)
X(glm)
X(hermes)
X(llama3)
X(json)

/* T_<name>. Those of calls stand side by side: the begin and the end of a block, and where a row's
 * block is five, of a call, and what separates its name from its arguments. */
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(z) "<" BAR "tool" LOW z BAR ">"
API_TAG(THINK, "<think>")
API_TAG(THINK_END, "</think>")
API_TAG(CALL, "<tool_call>")
API_TAG(CALL_END, "</tool_call>")
API_TAG(DS_CALLS, DS("calls" LOW "begin"))
API_TAG(DS_CALLS_END, DS("calls" LOW "end"))
API_TAG(DS_CALL, DS("call" LOW "begin"))
API_TAG(DS_CALL_END, DS("call" LOW "end"))
API_TAG(DS_SEP, DS("sep"))
API_TAG(KIMI_CALLS, "<|tool_calls_section_begin|>")
API_TAG(KIMI_CALLS_END, "<|tool_calls_section_end|>")
API_TAG(KIMI_CALL, "<|tool_call_begin|>")
API_TAG(KIMI_CALL_END, "<|tool_call_end|>")
API_TAG(KIMI_SEP, "<|tool_call_argument_begin|>")
API_TAG(PYTHON, "<|python_tag|>")
API_TAG(ARG_KEY, "<arg_key>")
API_TAG(ARG_KEY_END, "</arg_key>")
API_TAG(ARG_VALUE, "<arg_value>")
API_TAG(ARG_VALUE_END, "</arg_value>")
API_TAG(BLOCK, "<minimax:tool_call>")
API_TAG(BLOCK_END, "</minimax:tool_call>")
API_TAG(INVOKE, "<invoke name=\"")
API_TAG(INVOKE_END, "</invoke>")
API_TAG(PARAM, "<parameter name=\"")
API_TAG(PARAM_END, "</parameter>")
API_TAG(H_START, "<|start|>")
API_TAG(H_END, "<|end|>")
API_TAG(H_MESSAGE, "<|message|>")
API_TAG(H_CHANNEL, "<|channel|>")
API_TAG(H_CONSTRAIN, "<|constrain|>")
API_TAG(H_RETURN, "<|return|>")
API_TAG(H_CALL, "<|call|>")

#undef X
#undef API_TAG
