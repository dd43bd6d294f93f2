# SPDX-License-Identifier: Apache-2.0
printf '[{"role":"user","content":"a\\u0000b"}]' | $SLUICE template --messages -
