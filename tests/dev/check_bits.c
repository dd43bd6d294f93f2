/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
void check_bits(void) {}
void check_faults(void) {}
