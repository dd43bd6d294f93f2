# SPDX-License-Identifier: Apache-2.0
printf "a\n{%% import x %%}\n" > t.jinja; echo "[]" > m.json
$SLUICE template --template t.jinja --messages m.json
