// SPDX-License-Identifier: Apache-2.0
// A kernel as PTX: BODY_FILE under the name ENTRY.
#include "dev/gpu/kernel/c.inc"

#include "dev/gpu/kernel/arith.inc"
#include BODY_FILE
}
;

extern "C" __attribute__((global)) __attribute__((launch_bounds(LANES))) void ENTRY(P args)
{
    kernel k = {args};
    k.run();
}
