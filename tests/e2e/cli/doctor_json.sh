# SPDX-License-Identifier: Apache-2.0
$SLUICE doctor --json | python3 -c "import json,sys; print(type(json.load(sys.stdin)).__name__)"
