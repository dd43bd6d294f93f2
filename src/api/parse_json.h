/* SPDX-License-Identifier: Apache-2.0 */
/* One tool call written as a JSON object, byte by byte: {"name": ..., "arguments": {...}}. */
#ifndef API_PARSE_JSON_H
#define API_PARSE_JSON_H

#include <stdbool.h>

#include "base/str.h"

#define API_PARSE_HELD ((size_t)64 << 10) /* bytes held back before a call is known to be one */

enum api_parse_json_result {
    API_PARSE_JSON_MORE,
    API_PARSE_JSON_NAME, /* the call is one: its name is in name; arguments may follow */
    API_PARSE_JSON_ARG,  /* this byte belongs to the arguments */
    API_PARSE_JSON_DONE, /* the object is complete; arguments that came early are in args */
    API_PARSE_JSON_BAD,  /* no call */
    API_PARSE_JSON_NOMEM /* whether it is one is not known */
};
struct api_parse_json {
    bool strict; /* other keys than those of a call: BAD */
    int state, depth;
    int key;              /* of the value at hand */
    bool in_str, escaped; /* in a value */
    bool open;            /* NAME was given */
    bool has_name, has_args, args_str, live;
    bool nomem;      /* memory is short: nothing of this object is known for certain */
    struct str tmp;  /* the key or name at hand, with its quotes */
    struct str name; /* decoded */
    struct str args; /* arguments that came before the name, or as a string */
};

/* Before an object's first byte; strict: see there. fini is due afterwards. */
void api_parse_json_init(struct api_parse_json *j, bool strict);
void api_parse_json_fini(struct api_parse_json *j);
/* The next byte of the object; returns what is known after it. None follows DONE, BAD and NOMEM. */
enum api_parse_json_result api_parse_json_byte(struct api_parse_json *j, char c);

#endif
