# SPDX-License-Identifier: Apache-2.0
printf "{{ raise_exception(\"no such role\") }}" > t.jinja; echo "[]" > m.json; $SLUICE template \
    --template t.jinja --messages m.json
