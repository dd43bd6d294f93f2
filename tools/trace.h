/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of an engine as a Chrome trace (chrome://tracing, Perfetto). */
#ifndef TOOLS_TRACE_H
#define TOOLS_TRACE_H

#include <stdbool.h>

#include "base/status.h"

struct trace;
/* Errors: IO (names the file). */
sl_status trace_open(const char *path, struct trace **out, sl_err *err) BASE_MUST_USE;
/* As sl_engine_opts.on_step with user = struct trace *. Stops at 256 MiB. */
void trace_step(void *user, const sl_step_record *s);
void trace_close(struct trace *t); /* NULL is legal */

#endif
