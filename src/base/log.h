/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr: `sluice: text`. docs/house.md (Borders) says which rooms
 * may log. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_WARN */
enum log_level log_get_level(void);
void log_msg(enum log_level level, const char *fmt, ...) BASE_PRINTF(2, 3);

#endif
